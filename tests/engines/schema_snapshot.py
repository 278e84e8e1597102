"""The schema that all migrations of a SQL engine make, as readable text: tests/engines/<engine>/schema.txt.

After a change of migrations write it anew, and read the difference before you commit it:

    UPDATE_SCHEMA=1 .venv/bin/python -m pytest tests/engines/sqlite/test_schema.py tests/engines/postgres/test_schema.py

A migration that was released never changes; released_migrations.txt has the hash of each.
"""

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drumbeat.store.migrations import Migration

HERE = Path(__file__).parent
RELEASED = HERE / "released_migrations.txt"


def fingerprint(sql: str) -> str:
    """A hash of SQL, whatever its comments and spaces are."""
    return hashlib.sha256(normalize(sql).encode()).hexdigest()[:16]


def normalize(sql: str) -> str:
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())


def compare(engine: str, found: str) -> None:
    """With the file that is checked in; writes it instead if UPDATE_SCHEMA is set."""
    path = HERE / engine / "schema.txt"
    if os.environ.get("UPDATE_SCHEMA"):
        path.write_text(found, "utf-8")
    assert path.read_text("utf-8") == found, f"the schema is not as in {path.name}: see {__name__}.py"


def changed_migrations(engine: str, migrations: Iterable[Migration], released: str) -> list[int]:
    """Numbers of released migrations that are missing or not as they were released."""
    now = {migration.number: fingerprint(migration.sql) for migration in migrations}
    lines = [line.split() for line in released.splitlines() if line.startswith(f"{engine} ")]
    return [int(number) for _, number, hash, *_ in lines if now.get(int(number)) != hash]


def describe_sqlite(db: sqlite3.Connection) -> str:
    lines: list[str] = []
    for kind, name, table, sql in db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY tbl_name, type = 'table' DESC, name"
    ):
        if kind == "table":
            lines += ["", f"table {name} ({fingerprint(sql)})"]
            for _, column, type, not_null, default, _ in db.execute(f"PRAGMA table_info({name})"):
                rest = (" NOT NULL" if not_null else "") + (f" DEFAULT {default}" if default is not None else "")
                lines.append(f"    {column:<16} {type}{rest}")
        elif kind == "index":
            lines.append(f"  {normalize(sql).replace(f' ON {table} ', ' ')}")
        else:
            lines.append(f"  {kind} {name} ({fingerprint(sql)})")
    return "\n".join(lines[1:]) + "\n"


_TABLES = """
SELECT c.oid, c.relname, c.relkind::text, c.relpersistence::text, c.reloptions, pg_get_partkeydef(c.oid) AS key
  FROM pg_class AS c
 WHERE c.relnamespace = 'drumbeat'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
 ORDER BY c.relname"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull, l.collname,
       pg_get_expr(d.adbin, d.adrelid) AS value
  FROM pg_attribute AS a
  LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  LEFT JOIN pg_collation AS l ON l.oid = a.attcollation AND l.collname <> 'default'
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum"""
_PARTS = """
SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) AS line
  FROM pg_constraint WHERE conrelid = $1 AND contype <> 'n'
 UNION ALL
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1 AND NOT indisprimary
 UNION ALL
SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal
 ORDER BY 1"""
_FUNCTIONS = """
SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
       concat_ws(' ', l.lanname, p.provolatile::text, p.prosecdef, p.proconfig::text) AS options, p.prosrc
  FROM pg_proc AS p
  JOIN pg_language AS l ON l.oid = p.prolang
 WHERE p.pronamespace = 'drumbeat'::regnamespace
 ORDER BY p.proname"""


async def describe_postgres(connection: Any) -> str:
    lines: list[str] = []
    for table in await connection.fetch(_TABLES):
        options = [f"PARTITION BY {table['key']}"] if table["key"] else []
        options += ["UNLOGGED"] if table["relpersistence"] == "u" else []
        options += table["reloptions"] or []
        lines += ["", " ".join([f"table {table['relname']}", *options])]
        for column in await connection.fetch(_COLUMNS, table["oid"]):
            collation = f' COLLATE "{column["collname"]}"' if column["collname"] else ""
            rest = (" NOT NULL" if column["attnotnull"] else "") + (
                f" DEFAULT {column['value']}" if column["value"] else ""
            )
            lines.append(f"    {column['attname']:<16} {column['type']}{collation}{rest}")
        lines += [f"  {row['line']}" for row in await connection.fetch(_PARTS, table["oid"])]
    lines.append("")
    for function in await connection.fetch(_FUNCTIONS):
        body = fingerprint(f"{function['options']} {function['prosrc']}")
        lines.append(f"function {function['proname']}({function['arguments']}) -> {function['result']} ({body})")
    return "\n".join(lines[1:]) + "\n"
