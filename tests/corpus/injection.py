"""Texts that try to become something else than text, for every field that takes text.

Each must be refused with a sentence or arrive as exactly the one argument, line or name that it
was given for. `RAW` are bodies of messages that must be refused whole.
"""

from __future__ import annotations

import json
from typing import Any

#: What a shell would take for more than text.
SHELL = (
    "; touch PWNED", "x; touch PWNED", "$(touch PWNED)", "`touch PWNED`", "| touch PWNED",
    "|| touch PWNED", "&& touch PWNED", "& touch PWNED", "> PWNED", ">> PWNED", "< /etc/passwd",
    "x\n", "\nx", "x\ntouch PWNED", "x\r\ntouch PWNED", "x\rtouch PWNED", "${IFS}touch${IFS}PWNED",
    "$PATH", "${HOME}", "$((1+1))", "!!", "*", "?", "[a-z]*", "~", "~root", "{a,b}", "#comment",
    "'; touch PWNED; '", '"; touch PWNED; "', "'\\''; touch PWNED; '\\''", "\\", "\\\\", '"', "'",
    "''", '""', "a b", "a\tb", "  ", " lead", "trail ", "$'\\x74ouch PWNED'", "<(touch PWNED)",
    "%(touch PWNED)s", "a;b", "a|b", "a&b", "(touch PWNED)", "{ touch PWNED; }", "^C", "=cmd",
)  # fmt: skip

#: What a program would take for an option.
OPTIONS = (
    "-rf", "--wrap=touch PWNED", "--wrap", "-", "--", "-o", "-o/etc/passwd", "--uid=0",
    "-oProxyCommand=touch PWNED", "--export=ALL,LD_PRELOAD=/x.so",
    "--output=/etc/passwd", "-e touch", "--help",
    "-I{}", "-1", "−rf", "–wrap",
)  # fmt: skip

#: What a batch system would take for a directive.
DIRECTIVES = (
    "x\n#SBATCH --uid=0", "#SBATCH --wrap=x", "#PBS -S /bin/sh", "#$ -b y", "x\n+Owner=root",
    "x\nqueue 1000", "queue\nexecutable=/bin/sh", "x\n#BSUB -R all",
)  # fmt: skip

#: What a template would fill in.
TEMPLATES = (
    "{job}", "{path}", "{{job}}", "{0}", "{", "}", "{}", "{{", "}}", "{__class__}", "{x.__init__}",
    "%s%n", "%(x)s", "{{ 7*7 }}", "{% include '/etc/passwd' %}", "${job}", "#{7*7}", "<%= 1 %>",
    "{*}", "{folder}", "{unknown}", "$(CLUSTERID)", "$ENV(HOME)", "%j", "{!r}", "{:>99999999}",
)  # fmt: skip

#: What would lead out of the folder of the job.
PATHS = (
    "..", "../x", "../../etc/passwd", "a/../../x", "a/..", "/etc/passwd", "/", "//etc/passwd",
    "~/.ssh/id_rsa", ".", "./..", "a/./../..", "..\\x", "C:\\x", "/proc/self/environ", "a//b",
    "%2e%2e/x", "..%2fx", "a/\x00/../b", ".ssh/authorized_keys", "-o", "a/-rf", "dev/../../x",
    "x" * 5000, "/".join(["a"] * 3000),
)  # fmt: skip

#: What looks like something else than it is.
UNICODE = (
    "\x00", "a\x00b", "\x1b[2J", "\x07", "\x7f", "\x85", "\u2028x", "a\u2029b", "\u202egnp.exe",
    "\u2066x\u2069", "\ufeffx", "\u200fx", "a\u0301",
    "\uff54\uff4f\uff55\uff43\uff48", "\uff1btouch", "\u037e touch",
    "\u0430pplication", "x" * 100_000, "\U0001f4a3", "\u0000\u0000", "\x0b", "\x0c", "\x1e",
)  # fmt: skip

#: What would let a site talk to itself, its neighbours or the cloud that it runs in.
URLS = (
    "http://127.0.0.1/x", "http://localhost/x", "http://LOCALHOST./x", "http://169.254.169.254/x",
    "http://[::1]/x", "http://[::ffff:127.0.0.1]/x", "http://[fd00:ec2::254]/x",
    "http://[fe80::1]/x", "http://0.0.0.0/x", "http://0/x", "http://2130706433/x",
    "http://0x7f000001/x", "http://0177.0.0.1/x", "http://127.1/x", "http://10.0.0.1/x",
    "http://192.168.1.1/x", "http://172.16.0.1/x", "http://100.64.0.1/x", "http://224.0.0.1/x",
    "http://metadata.google.internal/x", "http://foo.localhost/x", "http://[::]/x",
    "http://[64:ff9b::7f00:1]/x", "http://[2002:7f00:1::]/x", "http://255.255.255.255/x",
    "http://data.example.org@127.0.0.1/x", "http://127.0.0.1#@data.example.org/",
    "http://127.0.0.1\\@data.example.org/", "http://data.example.org:22/x",
    "http://user:secret@data.example.org/x", "file:///etc/passwd", "file://../x",
    "ftp://data.example.org/x", "gopher://data.example.org/x", "javascript://x/%0aalert(1)",
    "http:///x", "http://", "://x", "http://data.example.org.evil.example/x",
    "http://evil.example/data.example.org", "http://\u217cocalhost/x", "http://\uff11\uff12\uff17.0.0.1/x",
    "https://data.example.org/../../x", "https://data.example.org/%2e%2e/x",
    "sftp://-oProxyCommand=touch/x", "rsync://data.example.org/--rsh=touch", "HTTP://127.0.0.1/x",
    "http://data.example.org:99999/x", "http://data.example.org:x/", "http://[::1/x",
    "https://data.example.org/x\nHost: evil", "https://data.example.org/a b",
)  # fmt: skip

VALUES: tuple[str, ...] = tuple(
    dict.fromkeys([*SHELL, *OPTIONS, *DIRECTIVES, *TEMPLATES, *PATHS, *UNICODE, *URLS])
)

_GOOD: dict[str, Any] = {"v": 1, "kind": "job", "site": "x", "application": "a"}


def _with(text: str) -> bytes:
    """Write a good message that has more in it than JSON's writers would write."""
    return (json.dumps(_GOOD)[:-1] + ", " + text + "}").encode()


#: Bodies that are refused as they are.
RAW: tuple[bytes, ...] = (
    b"", b" ", b"null", b"[]", b"1", b'"x"', b"{", b"}", b"{]", b"\xff\xfe", b"\x00", b"{'v': 1}",
    b"\xef\xbb\xbf" + json.dumps(_GOOD).encode(), json.dumps(_GOOD).encode("utf-16"),
    json.dumps(_GOOD).encode() + b"{}", b"[" * 100_000, b'{"a":' * 100_000,
    b'{"v": ' + b"[" * 17 + b"]" * 17 + b"}", b'"' + b'\\"' * 400_000, b"," * 400_000,
    b'{"v": 1e999}', b'{"v": -1e999}', b'{"v": NaN}', b'{"v": Infinity}', b'{"v": -Infinity}',
    b'{"v": ' + b"9" * 5000 + b"}", b'{"v": 1, "v": 1}', b'{"\\u0076": 1, "v": 1}',
    b'{"a": "' + b"x" * 1_100_000 + b'"}',
    _with('"nodes": 1, "nodes": 2'), _with('"nodes": NaN'), _with('"nodes": 1e400'),
    _with('"nodes": 1.5'), _with('"nodes": true'), _with('"nodes": "1"'), _with('"nodes": -1'),
    _with('"nodes": 0'), _with('"nodes": null'), _with('"nodes": 99999999999999999999'),
    _with('"state": "RUNNING"'), _with('"scheduler_id": 7'), _with('"working_directory": "/"'),
    _with('"user": "root"'), _with('"owner": "root"'), _with('"argv": ["sh"]'),
    _with('"parameters": {"a": 1, "a": 2}'), _with('"parameters": {"a": [1]}'),
    _with('"parameters": {"a": {"b": 1}}'), _with('"parameters": {"a": null}'),
    _with('"parameters": {"__class__": 1}'), _with('"parameters": {"a b": 1}'),
    _with('"name": "\\ud800"'), _with('"name": "\\u0000"'), _with('"resources": {"root": 1}'),
    _with('"inputs": [{"url": "http://x/", "to": "y"}]'), _with('"name": ["x"]'),
)  # fmt: skip
