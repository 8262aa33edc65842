"""For tests: contracts of plug-ins to inherit from (`batch`), and a bus in memory (`bus`).

`batch` needs `pytest` and `hypothesis`, which Pilotage itself does not.
"""
