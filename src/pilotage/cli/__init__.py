"""The command line: words come in, an `Answer` goes out and one renderer prints it.

Nouns have a file each; the everyday verbs stand at the top. `main` turns errors into exit statuses.
"""
