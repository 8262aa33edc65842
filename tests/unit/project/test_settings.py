"""The settings of a project: defaults, and mistakes told with their place."""

from __future__ import annotations

import msgspec
import pytest

from pilotage.base import errors
from pilotage.project import settings


def read(tmp_path, source: str | bytes) -> settings.Settings:
    body = source if isinstance(source, bytes) else source.encode()
    (tmp_path / settings.FILE).write_bytes(body)
    return settings.read(tmp_path)


def test_without_a_file_and_with_an_empty_one_all_have_their_defaults(tmp_path):
    assert settings.read(tmp_path) == settings.Settings()
    assert read(tmp_path, "") == settings.Settings()


def test_defaults_are_themselves_good_settings(tmp_path):
    settings._check(settings.Settings())
    assert settings.Settings().site.on_exit == "stop"
    assert settings.Settings().hub.host == settings.Settings().tcp.host == "127.0.0.1"


def test_what_is_written_holds_and_the_rest_stays(tmp_path):
    found = read(
        tmp_path,
        '[site]\ncpus = 3\nmemory = "2Gi"\n[events]\nmode = "poll"\n[http]\ntoken_file = "t"\n'
        '[app.wc]\nargv = ["wc", "-l"]\nabout = "count"\n',
    )
    assert (found.site.cpus, found.site.gpus, found.events.mode) == (3, 0, "poll")
    assert (found.http.token_file, found.http.max_size) == ("t", "16M")
    assert found.app == {"wc": settings.AppSettings(argv=("wc", "-l"), about="count")}
    offer = settings.offer(found)
    assert (offer.cpus, offer.free_cpus, offer.memory, offer.gpus) == (3, 3, 2 * 2**30, 0)


def test_an_offer_without_settings_is_this_machine():
    offer = settings.offer(settings.Settings())
    assert offer.free_cpus == offer.cpus >= 1
    assert offer.free_memory == offer.memory > 0


@pytest.mark.parametrize(
    "source, line, said",
    [
        ("[site]\ncpus = 1\ncpu = 2\n", 3, "cpu"),
        ("\n[sight]\ncpus = 1\n", 2, "sight"),
        ('\n[site]\ncpus = "many"\n', 3, "site.cpus"),
        ('[events]\nmode = "guess"\n', 2, "events.mode"),
        ('[site]\non_exit = "run"\n', 2, "site.on_exit"),
        ("[app.x]\nabout = 'no program'\n", 1, "argv"),
        ("[hub]\nport = 1.5\n", 2, "hub.port"),
        ('[bus]\nurl = "http://broker"\n', 2, "amqps://"),
        ("[site\n", None, "line 1"),
        ('[events]\nsettle = "soon"\n', 2, "'soon' as a duration"),
        ('[events]\npoll_interval = "-1s"\n', 2, "'-1s'"),
        ('[http]\nmax_size = "big"\n', 2, "'big' as a size"),
        ('[tcp]\nmax_size = "big"\n', 2, "'big' as a size"),
        ('[site]\nmemory = "big"\n', 2, "'big' as a size"),
        ('[retention]\nkeep = "long"\n', 2, "'long' as a duration"),
        ('[events]\nsettle = ""\n', 2, "'' as a duration"),
        (b"[site]\n# \xff\n", None, "utf-8"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(tmp_path, source, line, said):
    with pytest.raises(errors.ConfigError) as caught:
        read(tmp_path, source)
    place = tmp_path / settings.FILE
    assert str(caught.value).startswith(f"{place}:{line}: " if line else f"{place}: ")
    assert said in str(caught.value)
    assert caught.value.hint


def test_every_setting_can_be_written_and_read_back(tmp_path):
    defaults = msgspec.to_builtins(settings.Settings())
    lines: list[str] = []
    for table, values in defaults.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in values.items()]
    assert read(tmp_path, "\n".join(lines)) == settings.Settings()
