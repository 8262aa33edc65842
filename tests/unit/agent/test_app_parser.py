"""Config files of strangers, read by the site's own parser within bounds."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.agent.app import parser
from pilotage.agent.app.model import Application, Config, Parameter
from pilotage.base import errors

WORD = Parameter(kind="text", pattern=".*")


def app(config: Config | None) -> Application:
    return Application(executable="/bin/sim", sha256="0" * 64, config=config)


def script(folder: Path, body: str) -> tuple[str, ...]:
    """Write a parser in Python, beside the folder of the job."""
    file = folder / "parse"
    file.write_text(f"#!{sys.executable} -IS\n{body}\n")
    file.chmod(0o755)
    return (str(file), "{file}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "job"
    made.mkdir()
    (made / "run.cfg").write_text("# a job\nevents = 10\n\nlabel =  a = b \n")
    return made


async def parsed(config: Config, folder: Path, file: str = "run.cfg") -> parser.Parsed:
    return await parser.parse(app(config), str(folder), file)


async def test_keys_and_values_are_read_without_a_program(folder: Path):
    found = await parsed(Config(), folder)
    assert found.parameters == {"events": "10", "label": "a = b"}


async def test_a_parser_prints_json(folder: Path, tmp_path: Path):
    body = (
        "import json, os, sys\n"
        "print(json.dumps({'text': open(sys.argv[1]).readline().strip(), 'cwd': os.getcwd(),"
        " 'env': ','.join(sorted(os.environ)), 'argc': len(sys.argv)}))"
    )
    config = Config(format="json", program=script(tmp_path, body))
    found = (await parsed(config, folder)).parameters
    assert found["argc"] == 2
    assert found["cwd"] == str(folder)
    assert set(str(found["env"]).split(",")) <= {"HOME", "LANG", "LC_CTYPE", "PATH"}
    assert found["text"] == "# a job"


async def test_a_parser_prints_words(folder: Path, tmp_path: Path):
    config = Config(format="words", program=script(tmp_path, "print('-n 10 \"a b\" $(x)')"))
    assert (await parsed(config, folder)).words == ("-n", "10", "a b", "$(x)")


@pytest.mark.parametrize(
    "body, error",
    [
        ("import time; time.sleep(60)", errors.TimedOut),
        ("import os, time; os.fork() or time.sleep(60)", errors.TimedOut),
        ("while True: print('x' * 1000)", errors.TooLarge),
        ("import sys; sys.exit('no such key')", errors.Denied),
        ("x = bytearray(10**9)", errors.Denied),
        ("open('big', 'wb').write(bytes(10**7))", errors.Denied),
        ("print('{')", errors.BadMessage),
        ('print(\'{"a": 1, "a": 2}\')', errors.BadMessage),
        ("print('[1]')", errors.BadMessage),
        ("print('{\"a\": NaN}')", errors.BadMessage),
        ('import sys; sys.stdout.buffer.write(b\'{"a": "\\xff"}\')', errors.BadMessage),
    ],
)
async def test_a_parser_that_misbehaves_is_ended(
    folder: Path, tmp_path: Path, body: str, error: type[Exception]
):
    time_ = "2s" if error is errors.TimedOut else "30s"
    config = Config(format="json", program=script(tmp_path, body), time=time_, memory="400M")
    start = time.monotonic()
    with pytest.raises(error):
        await parsed(config, folder)
    assert time.monotonic() - start < 25


async def test_what_a_parser_says_of_a_bad_config_is_told(folder: Path, tmp_path: Path):
    body = "import sys; sys.exit('line 3: \\x1b[2J no such key')"
    config = Config(format="json", program=script(tmp_path, body))
    with pytest.raises(errors.Denied, match="line 3") as caught:
        await parsed(config, folder)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("file", ["../run.cfg", "/etc/passwd", "", "none", "link", "sub/link", "."])
async def test_a_config_is_below_the_folder_of_the_job(folder: Path, tmp_path: Path, file: str):
    (tmp_path / "secret").write_text("a = 1")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "sub").symlink_to(tmp_path)
    (tmp_path / "link").write_text("a = 1")
    with pytest.raises((errors.Denied, errors.NotFound)):
        await parsed(Config(), folder, file)


async def test_a_config_has_a_size(folder: Path):
    (folder / "run.cfg").write_text("# " + "x" * parser.MOST_CONFIG_BYTES)
    with pytest.raises(errors.TooLarge):
        await parsed(Config(), folder)
    with pytest.raises(errors.Denied):
        await parser.parse(app(None), str(folder), "run.cfg")


@pytest.mark.parametrize("text", ["a", "a b = 1", "= 1", "a = 1\na = 2", "-x = 1", "a\x00 = 1"])
def test_lines_that_say_nothing_are_refused(text: str):
    with pytest.raises(errors.BadMessage, match="line"):
        parser.keys(text)


@given(st.binary(max_size=300), st.sampled_from(["keys", "json", "words"]))
def test_any_bytes_are_parameters_or_a_refusal(raw: bytes, kind):
    config = Config(format=kind, word=WORD)
    try:
        found = parser.read(config, raw)
    except errors.BadMessage:
        return
    assert all(isinstance(word, str) for word in found.words)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,10}", fullmatch=True),
        st.text(st.characters(blacklist_categories=("Cs", "Cc"))).map(str.strip),
    )
)
def test_keys_come_out_as_they_went_in(given_: dict[str, str]):
    source = "\n".join(f"{key} = {value}" for key, value in given_.items())
    assert parser.keys(source) == given_
