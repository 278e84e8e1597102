"""Mistakes in Lua: comparisons, boundaries, dropped calls, branches, `not`, and/or, off by one."""

import re
from collections.abc import Iterator

from tests.mutation.blanking import blank_lua
from tests.mutation.mutants import Edit

COMPARISON = re.compile(r"[<>]=?|[=~]=")
OPPOSITES = {"==": "~=", "~=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
BOUNDARIES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
AND_OR = re.compile(r"\b(and|or)\b")
NOT = re.compile(r"\bnot\s+")
OFF_BY_ONE = re.compile(r"(?<=[+\-] )1\b(?![.\d])")
CONDITION = re.compile(r"\b(?:if|elseif)\s+(.*?)\s+then\b", re.DOTALL)
CALL = re.compile(r"^([ \t]*)([a-zA-Z_][\w.]*)\(", re.MULTILINE)


def find_edits(source: str) -> Iterator[Edit]:
    code = blank_lua(source)
    for found in COMPARISON.finditer(code):
        yield Edit("comparison", found.start(), found.end(), OPPOSITES[found[0]])
        if found[0] in BOUNDARIES:
            yield Edit("boundary", found.start(), found.end(), BOUNDARIES[found[0]])
    for found in AND_OR.finditer(code):
        yield Edit("and_or", found.start(), found.end(), "or" if found[0] == "and" else "and")
    for found in NOT.finditer(code):
        yield Edit("removed_not", found.start(), found.end(), "")
    for found in OFF_BY_ONE.finditer(code):
        yield Edit("off_by_one", found.start(), found.end(), "0")
    for found in CONDITION.finditer(code):
        yield from _swap_branch(source, found)
    for found in CALL.finditer(code):
        end = _end_of_call(code, found.end())
        rest = code[end : code.find("\n", end) if "\n" in code[end:] else len(code)]
        if end and not rest.strip():
            yield Edit("dropped_call", found.end(1), end, "do end")


def _swap_branch(source: str, found: re.Match[str]) -> Iterator[Edit]:
    """A single comparison, or a `not`, is turned round by its own kind."""
    condition = found[1]
    is_compound = re.search(r"\b(and|or)\b", condition) is not None
    if not is_compound and (COMPARISON.search(condition) or condition.startswith("not ")):
        return
    start, end = found.span(1)
    yield Edit("swapped_branch", start, end, f"not ({source[start:end]})")


def _end_of_call(code: str, start: int) -> int:
    """The offset behind the parenthesis that closes the call; 0: there is none."""
    depth = 1
    for offset in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[offset], 0)
        if depth == 0:
            return offset + 1
    return 0
