"""Configurations: a file of COBalD comes in, a pipeline goes out.

`document` reads YAML into plain values and things to be made, `names` knows what we make, `foreign`
stands for what others make, `build` joins it all, and `logs` reads the section on logging. `ours`
adds pools of hubs, `tardis` reads TARDIS's sites, which `carry` and `reach` make ours of. Nothing
is imported by name that the user did not allow.
"""
