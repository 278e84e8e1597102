"""What the tests of the project itself look at: the files that git knows or would take."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "drumbeat"
TESTS = ROOT / "tests"


def files() -> list[Path]:
    """Tracked files and new ones that are not ignored, so that a mistake shows before it is committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
