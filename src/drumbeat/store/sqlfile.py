"""Named SQL statements in `.sql` files: loaded at import, checked by name, given the tables' prefix.

A file is a list of statements, each under a line `-- name: x`. Python calls it by that name: `sql.claim`.
tests/meta/test_sql_files.py finds statements that no code uses and names that no file has.

    -- include: _x                      the text of the part `-- name: _x` of any of these files
    -- include: _x with y               the same with y in the place of each {{here}}
    {{history}}                         the columns of a list
    {{history from job, state = ?2}}    a value for each of them: as given here, as the source says, else `job.<column>`

Lists and sources are given by the engine (see job_columns.py). This module knows nothing of any database.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources

import msgspec

PREFIX = "drumbeat_"

_NAME = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*-- include: (_\w+)(?: with (.+?))?[ \t]*$", re.MULTILINE)
_LIST = re.compile(r"\{\{(\w+)(?: from (\w+))?(,[^{}]*)?\}\}")
_OVERRIDE = re.compile(r"\s*(\w+) = (.*)", re.DOTALL)
_KEYWORDS = frozenset({"unique", "end", "group"})
_ROW = re.compile(r"\bVALUES (\(\?(?:, \?)*\))")


class Statements:
    """Statements by name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.__dict__.update(texts)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"there is no SQL statement {name!r}")


class EngineStatements(msgspec.Struct, frozen=True, kw_only=True):
    """All statements of an engine, by the names of their files."""

    jobs: Statements
    steps: Statements
    dependencies: Statements
    workflows: Statements
    instances: Statements
    inspect: Statements
    search: Statements
    limits: Statements
    locks: Statements
    schedules: Statements
    rooms: Statements
    audit: Statements
    health: Statements
    stats: Statements
    malformed: Statements
    schema: Statements


class Source(msgspec.Struct, frozen=True):
    """Where the values of columns come from."""

    values: Mapping[str, str]
    """Expressions by column."""
    alias: str | None = None
    """The table that has all other columns; None: another column is an error."""


class Columns(msgspec.Struct, frozen=True):
    """What `{{...}}` may name."""

    lists: Mapping[str, Sequence[str]] = {}
    sources: Mapping[str, Source] = {}


NO_COLUMNS = Columns()


def parse(text: str, where: str, columns: Columns = NO_COLUMNS) -> dict[str, str]:
    """The statements of a text by name, without comments, in its order."""
    parts = _NAME.split(text)
    found: dict[str, str] = {}
    shared = {name: body.strip().removesuffix(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    for name, whole in zip(parts[1::2], parts[2::2], strict=True):
        body = _include(whole, shared, f"{where}: statement {name!r}")
        lines = [line for line in body.strip().splitlines() if not line.lstrip().startswith("--")]
        statement = "\n".join(lines).strip().removesuffix(";").rstrip()
        if not statement or name in found:
            raise ValueError(f"{where}: statement {name!r} is {'there twice' if name in found else 'empty'}")
        found[name] = statement
    return {
        name: expand(statement, columns, f"{where}: statement {name!r}")
        for name, statement in found.items()
        if not name.startswith("_")
    }


def _include(text: str, shared: Mapping[str, str], where: str) -> str:
    while names := {name for name, _ in _INCLUDE.findall(text)}:
        if missing := names - shared.keys():
            raise ValueError(f"{where} includes {min(missing)}, which is not there")
        text = _INCLUDE.sub(lambda line: shared[line[1]].replace("{{here}}", line[2] or ""), text)
    return text


def expand(text: str, columns: Columns, where: str = "") -> str:
    """The text with columns and values in the place of each `{{...}}`."""

    def replace(found: re.Match[str]) -> str:
        name, source, overrides = found.groups()
        if name not in columns.lists:
            raise ValueError(f"{where}: there is no list of columns {name!r}")
        if source is None and overrides is None:
            return ", ".join(map(quote_column, columns.lists[name]))
        given = dict(_overrides(overrides or "", where))
        if unused := given.keys() - set(columns.lists[name]):
            raise ValueError(f"{where}: {min(unused)!r} is no column of {name!r}")
        known = columns.sources.get(source, Source({}, source))
        return ", ".join(given.get(column) or _value(known, column, where) for column in columns.lists[name])

    return _LIST.sub(replace, text)


def _value(source: Source, column: str, where: str) -> str:
    if column in source.values:
        return source.values[column]
    if source.alias is None:
        raise ValueError(f"{where}: no value for the column {column!r}")
    return f"{source.alias}.{quote_column(column)}"


def _overrides(text: str, where: str) -> list[tuple[str, str]]:
    """`name = expression` between commas that stand outside of parentheses."""
    parts, depth = [""], 0
    for character in text.removeprefix(","):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    found = [_OVERRIDE.fullmatch(part) for part in parts if part.strip()]
    if not all(found):
        raise ValueError(f"{where}: not a list of `column = expression`: {text}")
    return [(each.group(1), each.group(2).strip()) for each in found if each is not None]


def quote_column(name: str) -> str:
    return f'"{name}"' if name in _KEYWORDS else name


def load(package: str, *files: str, columns: Columns = NO_COLUMNS) -> Statements:
    """Load the statements of these files."""
    folder = resources.files(package)
    text = "\n".join(folder.joinpath(file).read_text("utf-8") for file in files)
    return Statements(parse(text, f"{package}/{'+'.join(files)}", columns))


def load_engine(package: str, columns: Columns, *shared: str) -> EngineStatements:
    """Load the statements of an engine. Parts of the files `shared` may be included by all."""
    files = {topic: [*shared, f"{topic}.sql"] for topic in EngineStatements.__struct_fields__}
    files["jobs"] += ["insert.sql", "claim.sql", "completion.sql"]
    return EngineStatements(**{topic: load(package, *names, columns=columns) for topic, names in files.items()})


def change_names(statements: EngineStatements, change: Callable[[str], str]) -> EngineStatements:
    """The same statements for the tables of another namespace; `change` gives the text of a statement with their names."""
    topics = msgspec.structs.asdict(statements)
    return EngineStatements(
        **{
            topic: Statements({name: change(text) for name, text in vars(texts).items()})
            for topic, texts in topics.items()
        }
    )


def repeat_row(statement: str, count: int) -> str:
    """The statement with its row of placeholders, `VALUES (?, ?)`, written `count` times.

    One statement for a whole batch: a step for each row would release the interpreter's lock each time, and wait for it.
    """
    row = _ROW.search(statement)
    if row is None:
        raise ValueError(f"no row of placeholders to repeat in: {statement}")
    return f"{statement[: row.end(1)]}{(', ' + row.group(1)) * (count - 1)}{statement[row.end(1) :]}"
