"""Connections to a hub's port: an address and a secret come in, frames go both ways.

Programs, agents and relays dial with it; what the frames mean is said where they are handled.
"""
