"""The pages for people are true where a machine can tell: links lead somewhere, Python in them is Python."""

import ast
import re
from pathlib import Path

import pytest

from tests.meta.project import ROOT, SOURCE, files, shown

PAGES = [path for path in files() if path.suffix == ".md"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    return FENCE.sub("", text)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [
        link.split("#")[0] for link in LINK.findall(prose(page.read_text(encoding="utf-8"))) if "://" not in link
    ]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_python_in_a_page_compiles(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(block, shown(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_two_commands_are_in_the_first_screen_of_the_readme() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:24])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_the_architecture_tells_of_every_top_level_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = page.split("## The tree")[1].split("```")[1]
    names = {path.name if path.suffix == ".py" else f"{path.name}/" for path in SOURCE.iterdir() if is_code(path)}
    assert {name for name in names if name not in tree} == set()


def is_code(path: Path) -> bool:
    return path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))


def test_what_the_architecture_says_to_open_is_there() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## To change X, open Y")[1].split("\n## ")[0]
    named = re.findall(r"`((?:src|tests|tools|bench|docs|\.)[\w./-]*)`", table)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
