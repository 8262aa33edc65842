"""Applications that a site offers: `apps/NAME.toml`, written by the administrator of the site.

In come the name of an application, parameters and the user; out go a verdict with its reasons, and
a program with its arguments. Text of a user fills typed parameters and becomes whole arguments; it
is never a part of a template or of a shell command, and is a program only for an application whose
file says that it takes commands or functions (`edge.order`).
"""
