"""Bugs that the simulation must find: each a small edit of the source, as a tired colleague could make it.

`plant(bug, folder)` makes a copy of the source with the edit; a process that finds the copy first runs the seeds. An edit whose
text is no longer in the file fails the test: it must follow the code.
"""

import shutil
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "drumbeat"


class PlantedBug(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    file: str
    before: str
    after: str


def plant(bug: PlantedBug, folder: Path) -> Path:
    """Returns the folder to put before all others on the path of modules."""
    shutil.copytree(PACKAGE, folder / "drumbeat", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "drumbeat" / bug.file
    text = file.read_text()
    if text.count(bug.before) != 1:
        raise LookupError(f"{bug.name}: {bug.file} has {text.count(bug.before)} places like {bug.before!r}")
    file.write_text(text.replace(bug.before, bug.after))
    return folder
