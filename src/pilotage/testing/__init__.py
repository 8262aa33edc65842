"""Test helpers: contract suites for plug-ins to inherit (`batch`), and fakes (`bus`, `clock`).

`batch` needs `pytest` and `hypothesis`, which Pilotage itself does not.
"""
