"""Bugs that are planted in a copy of the source, to see whether a test or a search notices them."""

import shutil
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "drumbeat"


class PlantedBug(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    file: str
    """Relative to the package."""
    before: str
    """Occurs once in the file."""
    after: str
    promise: str = ""
    """What must be seen broken; empty: anything."""

    def apply(self, source: str) -> str:
        if source.count(self.before) != 1:
            raise LookupError(f"{self.name}: {self.file} has {source.count(self.before)} places like {self.before!r}")
        return source.replace(self.before, self.after)


def copy_package(folder: Path) -> None:
    """Put this folder before all others on the path of modules."""
    shutil.copytree(PACKAGE, folder / "drumbeat", ignore=shutil.ignore_patterns("__pycache__"))


def plant(bug: PlantedBug, folder: Path) -> Path:
    """Copy the package with this bug; returns the folder."""
    copy_package(folder)
    file = folder / "drumbeat" / bug.file
    file.write_text(bug.apply(file.read_text()))
    return folder
