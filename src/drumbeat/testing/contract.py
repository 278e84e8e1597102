"""The contract of stores as a test suite, for whoever writes an engine: the same tests that our own engines pass.

    python -m drumbeat.testing.contract my_engine:open_store              all of them
    python -m drumbeat.testing.contract my_engine:open_store -k claim -x  further words go to pytest

`open_store` is yours: `async def open_store(folder: Path, clock: Clock) -> Store` opens a store (`drumbeat.store.protocol`) on
a database that belongs to this folder, an empty one of its own for each test. Called again with the same folder it opens
another store on the same database, as another process would. Times are those of `clock`, unless your server has its own.

The module may also have `async def set_run_at(folder: Path, ids: Sequence[str], run_at: int)`, which changes the due time of
running jobs behind the store's back; without it the one test that needs it is skipped.

Left out is what runs inside a caller's own SQL transaction (`Store.transactional`), and what a step of a server's clock does.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from drumbeat.errors import ConfigError

STORE_VARIABLE = "DRUMBEAT_CONTRACT_STORE"
"""How the tests find `open_store`: module:function."""
PARTS = ("waiting.py", "contract")
LEFT_OUT = (
    "conftest.py",
    "leftovers.py",
    "run_at.py",
    "test_clock_steps.py",
    "test_dependencies_inside.py",
    "test_dependencies_pruned.py",
    "test_inside.py",
    "test_series_inside.py",
    "test_steps_inside.py",
)
"""They know our engines."""
NEEDS = {"pytest": "pytest", "pytest_asyncio": "pytest-asyncio", "hypothesis": "hypothesis"}
_INSTALLED = Path(__file__).parent / "contract_suite"
_CHECKOUT = Path(__file__).parents[3] / "tests"
_PACKAGE = """\
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)  # you may have a package of this name, with your engine in it
"""
_SETTINGS = """\
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
pythonpath = .
addopts = --import-mode=importlib -p no:cacheprovider
"""


def run_contract(store: str, *words: str) -> int:
    """Run the suite on the stores that `module:function` opens, with these words for pytest. Returns pytest's exit code.

    Raises:
        ConfigError: there is no such function, or a package is missing.
    """
    module, colon, function = store.partition(":")
    if not colon or importlib.util.find_spec(module) is None:
        raise ConfigError(f"{store!r} must be module:function, of a module that can be imported from {os.getcwd()}")
    if not callable(getattr(importlib.import_module(module), function, None)):
        raise ConfigError(f"{module} has no function {function!r}")
    if missing := [package for name, package in NEEDS.items() if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"the contract needs packages: pip install {' '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="drumbeat-contract-") as name:
        folder = Path(name)
        _lay_out(folder)
        path = os.pathsep.join([name, *filter(None, [os.getcwd(), *sys.path])])
        return subprocess.call(
            [
                sys.executable,
                "-m",
                "pytest",
                "-c",
                str(folder / "pytest.ini"),
                str(folder / "tests" / "contract"),
                *words,
            ],
            env=os.environ | {STORE_VARIABLE: store, "PYTHONPATH": path},
        )


def _lay_out(folder: Path) -> None:
    """The suite as a package `tests`, with a conftest that asks for one engine: yours."""
    source = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
    if not (source / "contract").is_dir():
        raise ConfigError("this installation of Drumbeat has no contract suite: install it from a wheel")
    (folder / "tests").mkdir()
    (folder / "tests" / "__init__.py").write_text(_PACKAGE)
    (folder / "pytest.ini").write_text(_SETTINGS)
    for part in PARTS:
        if (source / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", *LEFT_OUT)
            shutil.copytree(source / part, folder / "tests" / part, ignore=ignored)
        else:
            shutil.copy(source / part, folder / "tests" / part)
    shutil.copy(Path(__file__).with_name("contract_conftest.py"), folder / "tests" / "conftest.py")
    (folder / "tests" / "contract" / "conftest.py").write_text("from tests.conftest import NEWEST\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m drumbeat.testing.contract module:function [words for pytest]")
    sys.path.insert(0, os.getcwd())
    try:
        sys.exit(run_contract(*sys.argv[1:]))
    except ConfigError as error:
        sys.exit(f"drumbeat: {error}")
