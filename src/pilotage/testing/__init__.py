"""For tests: contracts of plug-ins to inherit from (`batch`), and fakes (`bus`, `clock`).

`batch` needs `pytest` and `hypothesis`, which Pilotage itself does not.
"""
