"""The applications that a site runs for others: `apps/NAME.toml`, written by who runs the site.

In: the name of an application, parameters, and who asks. Out: a verdict with reasons, and a
program with its arguments. Text of a user fills typed parameters and becomes whole arguments; it
never is a part of a template or a line of a shell, and is a program only for an application whose
file says that it takes commands or functions (`order`).

`model` has the nouns, `files` reads them, `trust` looks at the programs that they name, `fill` and
`command` make argument lists, `parser` reads config files, `policy` and `hosts` say who may what.
"""
