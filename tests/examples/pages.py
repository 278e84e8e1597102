"""The pages under docs/, taken apart: code blocks, what is to be done with them, tables, and words set as code.

How a page marks its Python blocks:

    # shop.py                             as first line: a complete program of that name, unique in all pages
    <!-- run -->                          before such a block: it is run as `python shop.py`
    <!-- run beside shop:app -->          the same, while `drumbeat run shop:app` runs in that folder
    ```text                               right after it: what it prints; ... stands for anything in a line
    <!-- check only -->                   before a fragment: it is type-checked, and not executed

Every other Python block is a fragment. It may use the names of drumbeat, of shop.py, and of the programs before it on its
page that have an app of their own; it is type-checked, and also executed if nothing in it is awaited.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

from tests.meta.project import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))

_BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_PROGRAM = re.compile(r"# ([a-z_]+\.py)\n")
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    mark: str
    text: str

    @property
    def program(self) -> str | None:
        found = _PROGRAM.match(self.text)
        return found[1] if self.language == "python" and found else None

    @property
    def has_app(self) -> bool:
        return "\napp = Drumbeat(" in self.text

    @property
    def awaits(self) -> bool:
        """Whether it can only run on an event loop."""
        return compile(self.text, self.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).co_flags & 0x80 != 0  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"{self.page}_{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page.stem.replace("-", "_"),
            line=text.count("\n", 0, found.start("text")),
            language=found["language"],
            mark=found["mark"] or "",
            text=found["text"],
        )
        for found in _BLOCK.finditer(text)
    ]


def programs() -> dict[str, str]:
    """The complete programs of all pages, by name."""
    found: dict[str, str] = {}
    for page in PAGES:
        for block in blocks(page):
            if block.program is not None:
                assert found.setdefault(block.program, block.text) == block.text, f"two programs are {block.program}"
    return found


def prints(page: Path, block: Block) -> str | None:
    """What the page says that a program prints."""
    each = blocks(page)
    after = each[each.index(block) + 1 :]
    return after[0].text if after and after[0].language == "text" else None


def fragments(page: Path) -> dict[str, str]:
    """A module for each fragment of a page, by name: `fragment` is its code, as a function."""
    around = {"quickstart": [], "readme": []}.get(page.stem.lower(), ["shop"])
    modules: dict[str, str] = {}
    for block in blocks(page):
        if block.program is not None:
            if block.has_app:
                around.append(block.program.removesuffix(".py"))
        elif block.language == "python":
            names = "".join(f"from {module} import *\n" for module in around)
            body = "".join(f"    {line}" if line.strip() else line for line in block.text.splitlines(keepends=True))
            kind = "async def" if block.awaits or block.mark == "check only" else "def"
            modules[str(block)] = f"from drumbeat import *\n{names}app = Drumbeat()\n{kind} fragment() -> None:\n{body}"
    return modules


def commands(page: Path) -> list[str]:
    """The lines of shell blocks, without comments and prompts, and what stands as `drumbeat ...` in the text."""
    text = page.read_text(encoding="utf-8")
    shell = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    words = [code for code in _CODE.findall(_BLOCK.sub("", text)) if code.startswith("drumbeat ")]
    return [line.strip() for line in [*shell, *words] if line.strip() and not line.startswith("#")]


def anchors(page: Path) -> set[str]:
    """What `page.md#...` may lead to, as GitHub names headings."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """(page, anchor) of every link to a heading of ours."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(((?!https?:)[^)#\s]*)#([^)\s]+)\)", text)
    return [((page.parent / target) if target else page, anchor) for target, anchor in found]


def codes(page: Path) -> list[str]:
    """Everything that is set as code in the text."""
    return _CODE.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))


def rows(page: Path) -> list[list[str]]:
    """The cells of all table rows, headings included."""
    lines = page.read_text(encoding="utf-8").splitlines()
    split = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [
        [cell.strip().replace("\\|", "|") for cell in cells] for cells in split if not set("".join(cells)) <= set("- :")
    ]


def code_of(cell: str) -> str:
    """What a cell that is all code says."""
    found = re.fullmatch(r"(`+) ?(.*?) ?\1", cell)
    assert found is not None, cell
    return found[2]
