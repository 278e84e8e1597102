"""Peers that are fetched when the bench runs, each into a folder of its own in the user's cache; never part of this repository.

By npm, because they are not Python; by pip, because their pins contradict each other: of those on Redis one wants redis-py
below 6 and another 8. Each runs with the client that its authors ask for.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INSTALL_TIMEOUT = 180


def node_modules(package: str, version: str) -> Path:
    return _cache() / f"{package}-{version}" / "node_modules"


def provide_by_npm(package: str, version: str, *, beside: tuple[str, ...] = ()) -> None:
    """With what it wants to be installed beside it. Raises ImportError where it cannot be had."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise ImportError("it needs node and npm")
    modules = node_modules(package, version)
    wanted = (f"{package}@{version}", *beside)
    if all((modules / name.rpartition("@")[0] / "package.json").exists() for name in wanted):
        return
    folder = modules.parent
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"private": True}))
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *wanted]
    made = _run(install, folder)
    if made.returncode != 0:
        said = [line for line in made.stderr.splitlines() if line.startswith("npm error")]
        raise ImportError(said[0] if said else f"npm install left with {made.returncode}")


def site_packages(package: str, version: str) -> Path:
    return _cache() / f"{package}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"


def provide_by_pip(package: str, version: str, requirements: tuple[str, ...]) -> None:
    """Raises ImportError where it cannot be had."""
    folder = site_packages(package, version)
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: what was broken off is not taken for a package.
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as unfinished:
        target = Path(unfinished) / "packages"
        install = [sys.executable, "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check"]
        made = _run([*install, "--target", str(target), *requirements], folder.parent)
        if made.returncode != 0:
            said = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
            raise ImportError(said[-1] if said else f"pip install left with {made.returncode}")
        target.rename(folder)


def _run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise ImportError(f"{command[0]} did not answer within {INSTALL_TIMEOUT} s") from error


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drumbeat-bench"
