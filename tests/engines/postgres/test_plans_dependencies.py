"""The statements about dependencies by what they touch, whatever the statistics say: among many jobs that wait for one parent
each, of which many have ended."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest

from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.connections import PostgresConnection
from drumbeat.store.postgres.statements import statements
from tests.conftest import POSTGRES
from tests.engines.postgres.conftest import address_of
from tests.engines.postgres.test_plans import explain, nodes, pages

MANY = 40_000
SOME = 500
SQL = statements("drumbeat")
FILL = """
INSERT INTO drumbeat.job (id, task, queue, priority, args, signature, created_at, due_at, run_at, crash_limit, is_parent,
                          open_parents, blocked_on, blocked_since, workflow)
SELECT md5('p' || number)::uuid, 'noop', 'default', 5, '{}', 's', 0, 0, 0, 3, true, NULL, NULL, NULL, NULL
  FROM generate_series(1, $1::integer) AS number
 UNION ALL
SELECT md5('c' || number)::uuid, 'noop', 'default', 5, '{}', 's', 0, 0, 0, 3, false, 1, 'parents', 0, 'w' || number % 1000
  FROM generate_series(1, $1::integer) AS number"""
EDGES = """
INSERT INTO drumbeat.edge (parent, child, place, life, if_fails, binding, argument)
SELECT md5('p' || number)::uuid, md5('c' || number)::uuid, 0, 0, 'cancel', 'result', 'x'
  FROM generate_series(1, $1::integer) AS number"""
WIDE_EDGES = """
INSERT INTO drumbeat.edge (parent, child, place, life, if_fails, binding, argument)
SELECT md5('p' || number)::uuid, md5('wide')::uuid, number, 0, 'cancel', 'results', 'x'
  FROM generate_series(1, $1::integer) AS number"""
KEPT = """
INSERT INTO drumbeat.parent_result (parent, task, state, result)
SELECT md5('p' || number)::uuid, 'noop', 'succeeded', '1'
  FROM generate_series(1, $1::integer) AS number"""
END = """
WITH gone AS (DELETE FROM drumbeat.job WHERE id = ANY (ARRAY(SELECT md5('p' || number)::uuid
                                                               FROM generate_series(1, $1::integer) AS number)) RETURNING *),
     left_over AS (INSERT INTO drumbeat.release (parent, life, event) SELECT id, 0, $2 FROM gone)
INSERT INTO drumbeat.history (id, created_at, due_at, run_at, finished_at, token, failures, crashes, crash_limit, replays,
                              priority, cancel_requested, state, queue, task, signature, "unique", "group", lane, args, result)
SELECT id, 0, 0, 0, drumbeat.now_us(), 1, 0, 0, 3, 0, 5, false, 'succeeded', queue, task, signature, '', '', '', '{}', '1'
  FROM gone"""


@pytest.fixture(scope="module", params=["never analysed", "analysed when empty", "settled"])
def full_url(request: pytest.FixtureRequest) -> str:
    """A database whose tables are full, for all tests of this file: what they do is rolled back."""
    url = POSTGRES.new_url()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(_fill(url, request.param))).result()
    return url


async def _fill(url: str, statistics: str) -> None:
    raw = await asyncpg.connect(url)
    for table in ("job", "edge", "release", "parent_result"):
        await raw.execute(f"ALTER TABLE drumbeat.{table} SET (autovacuum_enabled = off)")
    if statistics == "analysed when empty":
        await raw.execute("ANALYZE")
    await raw.execute(FILL, MANY, timeout=300)
    await raw.execute(EDGES, MANY, timeout=300)
    await raw.execute(WIDE_EDGES, MANY // 8, timeout=300)
    await raw.execute(KEPT, MANY, timeout=300)
    await raw.execute(END, MANY // 4, "succeeded", timeout=300)
    if statistics == "settled":
        await raw.execute("VACUUM ANALYZE", timeout=300)
    await raw.close()


@pytest.fixture
async def link(full_url: str) -> AsyncIterator[PostgresConnection]:
    async with await PostgresStore.open(address_of(full_url)) as store:
        yield store._parts.connection


@pytest.fixture
async def some(full_url: str) -> dict[str, list[str]]:
    """Ids of parents that are live and that have ended, and of children."""
    raw = await asyncpg.connect(full_url)
    found = {
        "live": "SELECT id::text FROM drumbeat.job WHERE is_parent LIMIT $1",
        "ended": "SELECT id::text FROM drumbeat.history LIMIT $1",
        "children": "SELECT child::text FROM drumbeat.edge LIMIT $1",
        "wide": "SELECT child::text FROM drumbeat.edge WHERE binding = 'results' LIMIT least($1, 1)",
    }
    ids = {name: [row[0] for row in await raw.fetch(query, SOME)] for name, query in found.items()}
    await raw.close()
    return ids


def whole_scans(plan: dict[str, Any]) -> set[str]:
    """Large tables that are read as a whole. (History and releases are not so large here that 500 seeks would be better.)"""
    large = {"job", "edge", "parent"}
    scanned = {
        node["Relation Name"].split("_")[0]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Actual Rows"] + node.get("Rows Removed by Filter", 0) > SOME
    }
    return scanned & large


@pytest.mark.parametrize(
    ("statement", "whose", "rest"),
    [
        ("known", "live", [0]),
        ("known", "ended", [0]),
        ("ended", "ended", [0]),
        ("lock_live_parents", "live", []),
        ("lock_dead_parents", "ended", []),
        ("lock_revivable_parents", "ended", []),
        ("ended_parents", "ended", []),
        ("lock_releases", "ended", []),
        ("count_releases", "ended", []),
        ("flag_parents", "live", []),
        ("load_results", "children", [1_000]),
        ("list_parents", "children", [10]),
        ("list_children", "live", [10]),
    ],
)
async def test_statements_about_some_jobs_go_by_indexes(
    link: PostgresConnection, some: dict[str, list[str]], statement: str, whose: str, rest: list[Any]
) -> None:
    plan = await explain(link, getattr(SQL.dependencies, statement), some[whose], *rest)
    assert whole_scans(plan) == set()
    assert pages(plan) < 80 * SOME


async def test_the_first_result_of_many_is_found_without_the_others(
    link: PostgresConnection, some: dict[str, list[str]]
) -> None:
    """Once the edges of a child were compared with each other: 15 s for 30,000 parents."""
    assert pages(await explain(link, SQL.dependencies.load_results, some["wide"], 1_000)) < 30


async def test_a_page_of_results_reads_no_others(link: PostgresConnection, some: dict[str, list[str]]) -> None:
    plan = await explain(link, SQL.dependencies.page_results, some["wide"][0], "x", 0, 1_000)
    assert whole_scans(plan) == set()
    assert pages(plan) < 20 * 1_000


async def test_an_advance_touches_what_it_follows(link: PostgresConnection) -> None:
    """A thousand ends with one child each, whose result it binds."""
    plan = await explain(link, SQL.dependencies.advance, 1_000)
    assert pages(plan) < 80 * 1_000


async def test_a_heartbeat_steps_over_all_that_wait_for_parents_at_once(link: PostgresConnection) -> None:
    plan = await explain(link, SQL.instances.heartbeat, "me", 0, "false", None)
    assert pages(plan) < 200


async def test_a_search_for_jobs_of_a_workflow_goes_by_its_index(link: PostgresConnection) -> None:
    low, high = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
    scan = SQL.search.live_scan_of_workflow
    plan = await explain(link, scan, *[None] * 9, low, high, 2_500, "w7")
    assert whole_scans(plan) == set()
    assert pages(plan) < 500


@pytest.mark.parametrize("statement", ["list_job_ids", "nodes", "list_sinks"])
async def test_the_jobs_of_a_workflow_are_found_by_their_index(link: PostgresConnection, statement: str) -> None:
    given = ["w7", None, 1_000] if statement == "list_job_ids" else ["w7", 1_000]
    plan = await explain(link, getattr(SQL.workflows, statement), *given)
    assert whole_scans(plan) == set()
    assert pages(plan) < 1_000
