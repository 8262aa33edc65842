"""For those who write plug-ins: what each must do, as tests to inherit from.

It needs `pytest` and `hypothesis`, which Pilotage itself does not.
"""
