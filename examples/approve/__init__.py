"""A person in the loop: nothing is published before somebody has looked at it."""
