"""`.env.example` lists every setting with its default, and nothing else."""

import re
from pathlib import Path

import msgspec

from drumbeat import dotenv
from drumbeat.settings import NAMES, PREFIX, Settings
from drumbeat.settings_loader import resolve

EXAMPLE = (Path(__file__).parents[2] / ".env.example").read_text(encoding="utf-8")
LINE = re.compile(rf"^(?:# ?)?({PREFIX}[A-Z_]+)=", re.MULTILINE)


def uncommented() -> dict[str, str]:
    return dotenv.parse("\n".join(line.removeprefix("# ") for line in EXAMPLE.splitlines() if LINE.match(line)))


def test_every_setting_is_listed_once_and_nothing_else_is() -> None:
    assert sorted(LINE.findall(EXAMPLE)) == sorted(PREFIX + name.upper() for name in NAMES)


def test_each_line_is_off_until_somebody_turns_it_on() -> None:
    assert dotenv.parse(EXAMPLE) == {}


def test_each_line_shows_the_default() -> None:
    shown = resolve({}, {}, {}, uncommented())
    defaults = resolve({}, {}, {}, {})
    assert msgspec.structs.replace(shown, origin={}) == msgspec.structs.replace(defaults, origin={})


def test_only_what_is_unset_by_default_is_left_empty() -> None:
    empty = {key.removeprefix(PREFIX).lower() for key, value in uncommented().items() if not value}
    assert empty == {name for name in NAMES if not getattr(Settings(), name) and getattr(Settings(), name) is not False}
