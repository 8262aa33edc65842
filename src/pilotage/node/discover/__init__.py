"""What this node is and has: a `Facts` of the hub, found by looking.

Everything is read below a root folder, so that tests can show any machine.
"""
