"""Mistakes in SQL, also inside functions of PL/pgSQL: a dropped predicate or lock clause, another order, one too many."""

import re
from collections.abc import Iterator

from tests.mutation.blanking import blank_sql
from tests.mutation.mutants import Edit

# What ends a predicate at its own depth of parentheses.
STOPS = (
    "AND|OR|ORDER|GROUP|LIMIT|OFFSET|RETURNING|FOR|UNION|EXCEPT|WHERE|WINDOW|HAVING|WHEN|THEN|ELSE|END|JOIN|LEFT|INNER|CROSS|"
    "SET|ON|LOOP|INTO|DO"
)
WORD = re.compile(rf"\b(?:{STOPS}|BETWEEN|CASE)\b|[();,]", re.IGNORECASE)
PREDICATE = re.compile(r"\b(WHERE|AND)\b", re.IGNORECASE)
BOUNDARY = re.compile(r"(?<![<>=!\-])(<=|>=|<|>)(?![<>=@])")
LOCK = re.compile(
    r"\bFOR\s+(?:NO\s+KEY\s+)?(?:KEY\s+)?(?:UPDATE|SHARE)\b(?:\s+OF\s+\w+)?(?:\s+(?:SKIP\s+LOCKED|NOWAIT))?",
    re.IGNORECASE,
)
SKIP_LOCKED = re.compile(r"\s+SKIP\s+LOCKED\b", re.IGNORECASE)
ADVISORY = re.compile(r"^[ \t]*PERFORM\s+pg_(?:try_)?advisory_\w+\([^;]*;", re.IGNORECASE | re.MULTILINE)
ORDER_BY = re.compile(r"\bORDER\s+BY\s+", re.IGNORECASE)
LIMIT = re.compile(r"\bLIMIT\s+(\d+|[:$?]\w+)", re.IGNORECASE)
OFF_BY_ONE = re.compile(r"(?<=[+\-] )1\b(?![.\d])")
OPPOSITE_BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


# Which rows an index has that only finds them changes no answer; tests of query plans see to it.
INDEX = re.compile(r"\bCREATE\s+INDEX\b[^;]*;", re.IGNORECASE)


def find_edits(source: str) -> Iterator[Edit]:
    code = INDEX.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), blank_sql(source))
    yield from _drop_predicates(code)
    for found in BOUNDARY.finditer(code):
        yield Edit("boundary", found.start(), found.end(), OPPOSITE_BOUNDARY[found[0]])
    for found in LOCK.finditer(code):
        yield Edit("dropped_lock", found.start(), found.end(), "")
    for found in SKIP_LOCKED.finditer(code):
        yield Edit("dropped_skip_locked", found.start(), found.end(), "")
    for found in ADVISORY.finditer(code):
        yield Edit("dropped_lock", found.start(), found.end(), "")
    for found in ORDER_BY.finditer(code):
        yield _reverse_first_key(code, found.end())
    for found in LIMIT.finditer(code):
        yield Edit("limit", found.end(1), found.end(1), " + 1")
    for found in OFF_BY_ONE.finditer(code):
        yield Edit("off_by_one", found.start(), found.end(), "0")


def _drop_predicates(code: str) -> Iterator[Edit]:
    """`AND x` is dropped whole; the first of several after WHERE up to its AND; a single one becomes true."""
    for found in PREDICATE.finditer(code):
        start = found.end()
        end, stop = _end_of_predicate(code, start)
        if found[1].upper() == "AND":
            if not _belongs_to_between(code, found.start()):
                yield Edit("dropped_predicate", found.start(), end, "")
        elif stop.upper() == "AND":
            yield Edit("dropped_predicate", start, end + len("AND"), "")
        elif stop.upper() != "OR":
            yield Edit("dropped_predicate", start, end, " true" + _trailing_space(code, start, end))


def _trailing_space(code: str, start: int, end: int) -> str:
    text = code[start:end]
    return text[len(text.rstrip()) :]


def _end_of_predicate(code: str, start: int) -> tuple[int, str]:
    """Where the predicate ends, and the word that ends it."""
    depth, cases, betweens = 0, 0, 0
    for word in WORD.finditer(code, start):
        text = word[0].upper()
        if text == "(":
            depth += 1
        elif text == ")":
            depth -= 1
            if depth < 0:
                return word.start(), text
        elif depth > 0:
            continue
        elif text == "CASE":
            cases += 1
        elif text == "END" and cases > 0:
            cases -= 1
        elif cases > 0:
            continue
        elif text == "BETWEEN":
            betweens += 1
        elif text == "AND" and betweens > 0:
            betweens -= 1
        else:
            return word.start(), text
    return len(code), ""


def _belongs_to_between(code: str, at: int) -> bool:
    return re.search(r"\bBETWEEN\s+[^()\s]+(?:\s*[+\-*]\s*\S+)*\s*$", code[:at], re.IGNORECASE) is not None


def _reverse_first_key(code: str, start: int) -> Edit:
    """ORDER BY a, b becomes ORDER BY a DESC, b; and the reverse."""
    depth = 0
    end = len(code)
    for word in WORD.finditer(code, start):
        text = word[0].upper()
        if text == "(":
            depth += 1
        elif text == ")" and depth > 0:
            depth -= 1
        elif depth == 0 and text not in {"CASE", "WHEN", "THEN", "ELSE", "AND", "OR", "END", "BETWEEN"}:
            end = word.start()
            break
    key = code[start:end].rstrip()
    direction = re.search(r"\s+(ASC|DESC)\b", key, re.IGNORECASE)
    if direction is None:
        return Edit("reversed_order", start + len(key), start + len(key), " DESC")
    other = "ASC" if direction[1].upper() == "DESC" else "DESC"
    return Edit("reversed_order", start + direction.start(1), start + direction.end(1), other)
