"""What must not be in any file of the project, and what every module must have."""

import ast
import re
from pathlib import Path

from tests.meta.project import SOURCE, files, shown

MAX_LINES = 350

# Written so that this file does not find itself.
OF_ONE_MACHINE = re.compile(
    r"(?<![\w.$}])/(?:roo[t]|wor[k]|hom[e]/[a-z]+|User[s]/[a-z]+|opt/(?:wheel[s]|pyp[i]))/"
    r"|--(?:extra-)?inde[x]-url|--find-link[s]|https?://[\w.:-]+/simpl[e]\b|registr[y]\.npmjs",
)


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def test_no_file_knows_a_path_of_one_machine_or_the_address_of_a_registry() -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()[:100]}"
        for path in files()
        if (text := text_of(path)) is not None
        for number, line in enumerate(text.splitlines(), start=1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert found == []


def test_modules_are_short_enough_to_be_one_thing() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {shown(path): length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_every_module_says_at_its_top_what_it_is() -> None:
    silent = [
        shown(path)
        for path in sorted(SOURCE.rglob("*.py"))
        if (text := path.read_text(encoding="utf-8")).strip() and ast.get_docstring(ast.parse(text)) is None
    ]
    assert silent == []
