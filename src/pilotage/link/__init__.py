"""Connections to a hub's port: an address and a secret come in, frames go both ways.

Programs, agents and relays dial with it; the meaning of frames is defined where they are handled.
"""
