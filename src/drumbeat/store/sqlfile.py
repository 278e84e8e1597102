"""SQL that lives in `.sql` files: loaded once, checked by name, given the tables' prefix.

A file is a list of statements, each under a line `-- name: x`. The Python side is a struct with one `str` field for each
name; a name that is missing on either side stops the import, so that a typing error is never found in production. A name
that begins with `_` is a part: its text is put wherever a line says `-- include: _x`, and it is no statement itself. This
module knows nothing of any database.
"""

import re
from functools import lru_cache
from importlib import resources
from typing import TypeVar

import msgspec

PREFIX = "drumbeat_"

_NAME = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*-- include: (_\w+)[ \t]*$", re.MULTILINE)
_ROW = re.compile(r"\bVALUES (\(\?(?:, \?)*\))")

S = TypeVar("S", bound=msgspec.Struct)


def parse(text: str, where: str) -> dict[str, str]:
    """The statements of a file by name, without comments, in the order of the file."""
    parts = _NAME.split(text)
    found: dict[str, str] = {}
    shared = {name: body.strip().removesuffix(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    for name, whole in zip(parts[1::2], parts[2::2], strict=True):
        if missing := set(_INCLUDE.findall(whole)) - shared.keys():
            raise ValueError(f"{where}: statement {name!r} includes {min(missing)}, which is not there")
        body = _INCLUDE.sub(lambda line: shared[line.group(1)], whole)
        lines = [line for line in body.strip().splitlines() if not line.lstrip().startswith("--")]
        statement = "\n".join(lines).strip().removesuffix(";")
        if not statement or name in found:
            raise ValueError(f"{where}: statement {name!r} is {'there twice' if name in found else 'empty'}")
        found[name] = statement
    return {name: statement for name, statement in found.items() if not name.startswith("_")}


def load(kind: type[S], package: str, file: str) -> S:
    """The file's statements as this struct; its fields and the names in the file must be the same."""
    where = f"{package}/{file}"
    found = parse(resources.files(package).joinpath(file).read_text("utf-8"), where)
    wanted = set(kind.__struct_fields__)
    if found.keys() != wanted:
        raise ValueError(f"{where}: missing {sorted(wanted - found.keys())}, unused {sorted(found.keys() - wanted)}")
    return kind(**found)


def with_namespace(statements: S, namespace: str) -> S:
    """The same statements for the tables of another namespace."""
    texts = msgspec.structs.asdict(statements)
    return type(statements)(**{name: in_namespace(text, namespace) for name, text in texts.items()})


def in_namespace(text: str, namespace: str) -> str:
    return text.replace(PREFIX, f"{namespace}_")


@lru_cache(maxsize=256)
def repeat_row(statement: str, count: int) -> str:
    """The statement with its row of placeholders, `VALUES (?, ?)`, written `count` times.

    One statement for a whole batch: a step for each row would give up the interpreter's lock each time, and wait for it.
    """
    row = _ROW.search(statement)
    if row is None:
        raise ValueError(f"no row of placeholders to repeat in: {statement}")
    return f"{statement[: row.end(1)]}{(', ' + row.group(1)) * (count - 1)}{statement[row.end(1) :]}"
