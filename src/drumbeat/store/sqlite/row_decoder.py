"""Reads rows that may be damaged: a column of SQLite takes a value of any type.

A statement returns a batch as one JSON text, decoded at once. Where SQLite cannot make the text (a blob, broken JSON, invalid
UTF-8) or it does not decode, the same statement runs again for plain rows, and each is read field by field.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, Self, TypeVar

import msgspec

from drumbeat.store.malformed import Faults, R, RecordKind, read_value
from drumbeat.store.sqlite.connection import SqliteConnection

T = TypeVar("T")

UNREADABLE = (sqlite3.OperationalError, sqlite3.DataError, msgspec.DecodeError, UnicodeError)

_JSON_WRAPPER = re.compile(r"SELECT\s+(json_group_array\(json_array\(|json_group_array\(|json_array\()")
_NESTED_JSON = re.compile(r"\bjson\((\w+(?:\.\w+)?)\)")


class RowDecoder(Generic[R]):
    """Rows of one kind."""

    def __init__(
        self,
        record: type[R],
        kind: str,
        *,
        id: str = "id",
        repair: Callable[[dict[str, Any], Faults], dict[str, Any] | None] | None = None,
    ) -> None:
        """As in RecordKind."""
        self._kind = RecordKind(kind, record, id=id, repair=repair)
        self.salvage = self._kind.salvage
        self._decode: Callable[[str], list[R]] = msgspec.json.Decoder(list[record]).decode  # type: ignore[valid-type]

    @classmethod
    def of(cls, kind: RecordKind[R]) -> Self:
        return cls(kind.record, kind.kind, id=kind.id, repair=kind.repair)

    def read(self, db: SqliteConnection, sql: str, parameters: Mapping[str, Any] | None = None) -> list[R]:
        """The rows of a statement that returns a JSON array of them."""
        try:
            return self._decode(db.value(sql, parameters or {}))
        except UNREADABLE:
            return self.read_rows(db, without_json(sql), parameters)

    def read_rows(self, db: SqliteConnection, sql: str, parameters: Mapping[str, Any] | None = None) -> list[R]:
        """The rows of a statement that returns them one by one."""
        return self._kind.read_rows(db.rows(sql, parameters or {}))


def read_scalars(
    db: SqliteConnection, sql: str, kind: type[T], parameters: Mapping[str, Any] | None = None
) -> list[T | None]:
    """The values of a statement that returns a JSON array of them; None for one that cannot be read."""
    try:
        found: list[T | None] = msgspec.json.decode(db.value(sql, parameters or {}), type=list[kind | None])  # type: ignore[valid-type]
        return found
    except UNREADABLE:
        rows = db.rows(without_json(sql), parameters or {})
        return [read_value("value", row[0], kind | None)[0] for row in rows]


def is_text(stored: Any) -> bool:
    return read_value("text", stored, str)[1] is None


def is_text_or_none(stored: Any) -> bool:
    return stored is None or is_text(stored)


def encode_lossless(text: str) -> bytes:
    """The bytes of a text that `SqliteConnection.rows` returned."""
    return text.encode("utf-8", "surrogateescape")


@lru_cache(maxsize=64)
def without_json(sql: str) -> str:
    """The same statement for rows instead of one JSON text."""
    found = None
    for found in _JSON_WRAPPER.finditer(sql):
        if sql.count("(", 0, found.start()) == sql.count(")", 0, found.start()):
            break
    if found is None:
        raise ValueError(f"not a statement that returns a JSON array: {sql}")
    depth, at = found.group(1).count("("), found.end()
    while depth:
        depth += {"(": 1, ")": -1}.get(sql[at], 0)
        at += 1
    inner = sql[found.end() : at - found.group(1).count("(")]
    columns = _NESTED_JSON.sub(r"\1", inner)
    return f"{sql[: found.start()]}SELECT {columns}{sql[at:]}"
