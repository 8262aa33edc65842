"""Bring the program to a login node and become it, with nothing there but a Python.

`python3 -c BOOTSTRAP ROOT SHA SIZE` answers one line: `have`, `need` (SIZE bytes are to follow),
`old 3.6.8` if that Python is too old, or `bad` with words. After `have` or the bytes it is the
program, on the same input and output; a failure after the bytes is another line `bad` with words.
"""

from __future__ import annotations

from typing import Final

#: Python 3.6 must be able to read all of it, else it could not even say that it is too old.
BOOTSTRAP: Final = """
import os, sys
def say(words):
    os.write(1, words.encode("ascii", "replace") + b"\\n")
if sys.version_info < (3, 9):
    say("old %d.%d.%d" % sys.version_info[:3])
    sys.exit(3)
import hashlib
def whole(path):
    try:
        with open(path, "rb") as file:
            data = file.read(size + 1)
    except FileNotFoundError:
        return False
    return len(data) == size and hashlib.sha256(data).hexdigest() == sha
def sync(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
def fetch():
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, min(size - len(data), 1 << 18))
        if not piece:
            sys.exit(4)
        data += piece
    if hashlib.sha256(data).hexdigest() != sha:
        raise ValueError("the program arrived damaged")
    part = "%s.%d.part" % (target, os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, target)
    except OSError:
        if os.path.exists(part):
            os.unlink(part)
        raise
    sync(bin)
try:
    os.umask(0o077)
    root, sha, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    root = os.path.abspath(os.path.expanduser(root))
    bin = os.path.join(root, "bin")
    target = os.path.join(bin, sha + ".pyz")
    os.makedirs(bin, exist_ok=True)
    if whole(target):
        say("have")
    else:
        say("need")
        fetch()
    os.execv(sys.executable, [sys.executable, "-I", "-S", target, "hand", root])
except (OSError, ValueError) as error:
    say("bad " + str(error))
    sys.exit(5)
"""
