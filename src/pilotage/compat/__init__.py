"""Compatibility: programs and configurations of other systems in, rules, sites and pools out.

COBalD, TARDIS and MEOW are supported; only the command line imports this package.
"""
