"""Lua files are checked when they are loaded, used by the code, and written so that Redis runs them on a full server."""

import re
from pathlib import Path

import pytest

from drumbeat.store.redis import keys, scripts
from drumbeat.store.redis.scripts import SCRIPTS
from tests.meta.project import SOURCE

HEADER = "-- Does it.\n-- KEYS: 1 the prefix\n-- ARGV: none\n-- returns: 1\n"
FOLDER = SOURCE / "store" / "redis"


def write_scripts(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.lua").write_text(text)
    return folder


def test_what_is_included_stands_in_the_text_once(tmp_path: Path) -> None:
    found = scripts.load_scripts(
        write_scripts(
            tmp_path,
            a_do=f"{HEADER}-- include: _two\n-- include: _one\nreturn one()\n",
            _one="local function one() return 1 end\n",
            _two="-- include: _one\nlocal two = one() + 1\n",
        )
    )
    assert list(found) == ["a_do"]
    assert found["a_do"].lua.count("function one()") == 1
    assert (
        found["a_do"].lua.index("function one()")
        < found["a_do"].lua.index("local two")
        < found["a_do"].lua.index("return one")
    )


@pytest.mark.parametrize("missing", ["KEYS", "ARGV", "returns"])
def test_a_header_that_lacks_something_is_refused(tmp_path: Path, missing: str) -> None:
    text = "".join(line for line in HEADER.splitlines(True) if missing not in line)
    with pytest.raises(ValueError, match=f"do.lua: its header says nothing of {missing}"):
        scripts.load_scripts(write_scripts(tmp_path, do=f"{text}return 1\n"))


def test_an_include_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"do\.lua includes _gone\.lua"):
        scripts.load_scripts(write_scripts(tmp_path, do=f"{HEADER}-- include: _gone\nreturn 1\n"))


def test_an_unknown_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no flag allow-all"):
        scripts.load_scripts(write_scripts(tmp_path, do=f"{HEADER}-- flags: allow-all\nreturn 1\n"))


def test_a_script_that_makes_room_says_so_in_the_way_that_the_server_knows(tmp_path: Path) -> None:
    [script] = scripts.load_scripts(write_scripts(tmp_path, do=f"{HEADER}-- flags: allow-oom\nreturn 1\n")).values()
    assert script.with_flags.lua.startswith("#!lua flags=allow-oom\n")
    assert not script.without_flags.lua.startswith("#!")
    assert script.with_flags.sha != script.without_flags.sha


def test_every_script_is_called_and_every_call_has_its_script() -> None:
    called = {
        name
        for path in FOLDER.glob("*.py")
        for name in re.findall(r'\b(?:run|_run_counting)\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert called == SCRIPTS.keys()


def test_every_shared_file_is_included_by_a_script() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("lua/*.lua")]
    included = {name for text in texts for name in re.findall(r"^-- include: (\w+)", text, re.MULTILINE)}
    assert included == {path.stem for path in FOLDER.glob("lua/_*.lua")}


def test_every_key_that_a_script_names_is_explained() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FOLDER.glob("lua/*.lua")]
    named = {name for text in texts for name in re.findall(r"(?:P|p|prefix|KEYS\[1\]) \.\. '(\w+)", text)}
    explained = set(re.findall(r"^    (\w+)\S* {2,}(?:hash|zset|set|list|channel)\b", keys.__doc__ or "", re.MULTILINE))
    # Asked for, and never there.
    assert named - explained == {"probe"}
