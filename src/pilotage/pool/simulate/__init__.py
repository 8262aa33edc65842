"""Simulation of pools: a scenario, a seed and a policy in, figures out.

The policies are those that run in production; each decision keeps its reason.
"""
