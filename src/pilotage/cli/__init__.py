"""The command line: arguments in, an `Answer` out, which `printing` prints.

Each noun has a module, everyday verbs are top-level commands, and `main` maps errors to exit codes.
"""
