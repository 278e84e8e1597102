"""Mutants: a source file with one small edit, and a name by which it can be planted again."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec


class Edit(msgspec.Struct, frozen=True):
    """Replace text[start:end]. `kind`: what sort of mistake this is."""

    kind: str
    start: int
    end: int
    replacement: str


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """file:kind:hash. The hash is of the line and the edit, so it survives changes elsewhere in the file."""
    file: str
    """Relative to the package."""
    line: int
    edit: Edit
    before: str
    after: str
    """The lines that the edit touches."""


def apply(edit: Edit, source: str) -> str:
    return source[: edit.start] + edit.replacement + source[edit.end :]


def name_mutants(file: str, source: str, edits: Iterable[Edit]) -> Iterator[Mutant]:
    """In the order of the file. Equal edits of equal lines are told apart by their number."""
    seen = Counter[str]()
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.kind, edit.replacement)):
        if source[edit.start : edit.end] == edit.replacement:
            continue
        first = source.rfind("\n", 0, edit.start) + 1
        last = source.find("\n", edit.end)
        last = len(source) if last < 0 else last
        before = source[first:last]
        after = source[first : edit.start] + edit.replacement + source[edit.end : last]
        key = f"{_squeeze(before)}\0{_squeeze(after)}"
        number = seen[edit.kind + key]
        seen[edit.kind + key] += 1
        digest = hashlib.sha256(f"{key}\0{number or ''}".encode()).hexdigest()[:8]
        line = source.count("\n", 0, edit.start) + 1
        yield Mutant(id=f"{file}:{edit.kind}:{digest}", file=file, line=line, edit=edit, before=before, after=after)


def _squeeze(text: str) -> str:
    return " ".join(text.split())
