"""Statements that delete at most so many rows delete no more, whatever plan is chosen.

`WHERE id IN (SELECT ... LIMIT 2 FOR UPDATE SKIP LOCKED)` may be planned as a nested loop that runs the subquery anew for each
row: what the statement itself has deleted is skipped, and each run takes two more.
"""

from typing import Any

import pytest

from drumbeat.store.postgres.statements import statements
from drumbeat.store.sqlfile import EngineStatements

SQL: EngineStatements = statements("drumbeat")
LIMIT = 2
MESSAGES = """INSERT INTO drumbeat.room_message (sent_at, id, room, "to", args, signature)
              SELECT number, number::text, 'r', 'one', '{}', 's' FROM generate_series(1, 9) AS number"""
ACTS = """INSERT INTO drumbeat.audit (at, holds_key, id, who, role, via, verb, target, reason)
          SELECT number, false, number::text, 'ann', 'admin', 'cli', 'verb', 'target', ''
            FROM generate_series(1, 9) AS number"""
COUNTS = """INSERT INTO drumbeat.rollup (resolution, at, queue, task, instance, written_at, counts)
            SELECT 0, 0, 'default', 't' || number, 'gone', 0, '{}' FROM generate_series(1, 9) AS number"""
FORCE_NESTED_LOOP = """SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_hashagg = off; SET enable_sort = off;
                       SET enable_material = off; SET enable_bitmapscan = off"""


@pytest.mark.parametrize(
    ("fill", "statement", "facts"),
    [
        pytest.param(MESSAGES, SQL.rooms.take, ("one", LIMIT), id="rooms.take"),
        pytest.param(MESSAGES, SQL.rooms.prune, (0, LIMIT, ["two"]), id="rooms.prune"),
        pytest.param(ACTS, SQL.audit.prune, (100, LIMIT), id="audit.prune"),
        pytest.param(COUNTS, SQL.stats.prune, (0, 100, LIMIT), id="stats.prune"),
        pytest.param(COUNTS, SQL.stats.delete_gone_totals, (100, LIMIT), id="stats.delete_gone_totals"),
    ],
)
async def test_no_more_go_than_the_limit(raw: Any, fill: str, statement: str, facts: tuple[Any, ...]) -> None:
    await raw.execute(fill)
    await raw.execute(FORCE_NESTED_LOOP)
    assert len(await raw.fetch(statement, *facts)) == LIMIT
