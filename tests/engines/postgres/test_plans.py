"""The hot statements by their plans, whatever the statistics say: never taken, taken while the table was empty, or settled.

Half of the jobs lie in the future under the most urgent priority of the same queue: a claim that steps over them is seen in
the pages it touches. `DRUMBEAT_FULL=1` does it with a million jobs.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest

from drumbeat.core.claim import ClaimRequest, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.connections import PlanMode, PostgresConnection, Session
from drumbeat.store.postgres.statements import statements
from tests.conftest import POSTGRES
from tests.contract.making import worker
from tests.engines.postgres.conftest import address_of
from tests.servers.postgres import PostgresServer

MANY = 1_000_000 if os.environ.get("DRUMBEAT_FULL") else 40_000
HELD = 500
SQL = statements("drumbeat").jobs
FILL = """
INSERT INTO drumbeat.job (id, task, queue, priority, args, signature, created_at, due_at, run_at, crash_limit)
SELECT md5(number::text)::uuid, 'noop', 'default', CASE WHEN number % 2 = 0 THEN 0 ELSE 5 END, '{}', 's', 0, 0,
       drumbeat.now_us() + CASE WHEN number % 2 = 0 THEN 3600000000 ELSE -1000000 - number END, 3
  FROM generate_series(1, $1::integer) AS number"""
HOLD = """
UPDATE drumbeat.job SET state = 'running', instance = $1, token = 7, claimed_at = 7
 WHERE id IN (SELECT id FROM drumbeat.job WHERE priority = 5 LIMIT 500)"""


@pytest.fixture(scope="module", params=["never analysed", "analysed when empty", "settled"])
def full(request: pytest.FixtureRequest) -> tuple[str, InstanceId]:
    """A database whose job table is full, for copies, which take a tenth of the time; and an instance that holds 500 jobs."""
    url = POSTGRES.new_url()
    with ThreadPoolExecutor(1) as thread:
        return url, thread.submit(lambda: asyncio.run(_fill(url, request.param))).result()


async def _fill(url: str, statistics: str) -> InstanceId:
    raw = await asyncpg.connect(url)
    await raw.execute("ALTER TABLE drumbeat.job SET (autovacuum_enabled = off)")
    if statistics == "analysed when empty":
        await raw.execute("ANALYZE drumbeat.job")
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
    await raw.execute(FILL, MANY, timeout=300)
    await raw.execute(HOLD, instance)
    if statistics == "settled":
        await raw.execute("VACUUM ANALYZE drumbeat.job", timeout=300)
    await raw.close()
    return instance


@pytest.fixture
async def url(request: pytest.FixtureRequest, server: PostgresServer) -> AsyncIterator[str]:
    """A fresh database: a copy of the full one, for whoever wants it filled."""
    if "filled" not in request.fixturenames:
        yield POSTGRES.fresh_url()
        return
    source = request.getfixturevalue("full")[0].rpartition("/")[2]
    await server.execute(f"CREATE DATABASE copy_of_{source} TEMPLATE {source} STRATEGY FILE_COPY")
    yield server.url_of(f"copy_of_{source}")
    await server.drop_database(f"copy_of_{source}")


@pytest.fixture
async def filled(full: tuple[str, InstanceId], url: str) -> AsyncIterator[tuple[PostgresStore, InstanceId]]:
    """A store whose job table is full, and an instance that holds 500 of its jobs."""
    async with await PostgresStore.open(address_of(url)) as store:
        yield store, full[1]


async def explain(link: PostgresConnection, statement: str, *arguments: Any) -> dict[str, Any]:
    """The plan as the engine's own connection makes and keeps it, with what it touched; nothing is kept."""

    async def work(session: Session) -> Any:
        transaction: Any = session.transaction()
        await transaction.start()
        try:
            await session.execute(f"PREPARE hot AS {statement}")
            given = f"({', '.join(map(literal, arguments))})" if arguments else ""
            return await session.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE hot {given}")
        finally:
            await transaction.rollback()
            await session.execute("DEALLOCATE hot")

    plans = (
        PlanMode.GENERIC if statement in {SQL.report_and_claim, SQL.before_copy, SQL.after_copy} else PlanMode.DEFAULT
    )
    plan: dict[str, Any] = json.loads(await link.call(work, timeout=60, plan_mode=plans))[0]["Plan"]
    return plan


def literal(value: Any) -> str:
    if isinstance(value, list):
        return "'{" + ",".join("NULL" if each is None else f'"{each}"' for each in value) + "}'"
    return "NULL" if value is None else f"'{value}'"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans_of(plan: dict[str, Any], table: str) -> list[tuple[str, str]]:
    """(kind of scan, index) of every scan of the table that was carried out."""
    return sorted(
        {
            (node["Node Type"], node.get("Index Name", ""))
            for node in nodes(plan)
            if node["Actual Loops"]
            and (
                (node.get("Relation Name") == table and "Scan" in node["Node Type"])
                or table in node.get("Index Name", "")
            )
        }
    )


def pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


async def held_ids(raw: Any, instance: InstanceId) -> list[str]:
    return [row[0] for row in await raw.fetch("SELECT id::text FROM drumbeat.job WHERE instance = $1", instance)]


def claim_arguments(instance: InstanceId, ended: list[str], limit: int) -> list[Any]:
    count = len(ended)
    none = [None] * count
    return [instance, ended, [7] * count, none, none, none, none, ["default"], [limit], limit, [0] * 10, "{}"]


@pytest.mark.parametrize("link", ["claim_connection", "connection"])
async def test_a_claim_walks_its_index_level_by_level(filled: tuple[PostgresStore, InstanceId], link: str) -> None:
    store, instance = filled
    plan = await explain(getattr(store._parts, link), SQL.report_and_claim, *claim_arguments(instance, [], HELD))
    assert ("Index Scan", "job_for_claim") in scans_of(plan, "job")
    assert {kind for kind, _ in scans_of(plan, "job")} <= {
        "Index Scan",
        "Tid Scan",
        "Bitmap Heap Scan",
        "Bitmap Index Scan",
    }
    [walk] = [node for node in nodes(plan) if node.get("Index Name") == "job_for_claim" and node["Actual Rows"]]
    for column in ("queue", "priority", "run_at"):
        assert column in walk["Index Cond"]
    assert pages(plan) < 60 * HELD, "it must not step over what is not due"


@pytest.mark.parametrize("statement", ["before_copy", "after_copy"])
async def test_the_looks_around_a_copy_go_by_the_indexes_of_the_other_kind(
    filled: tuple[PostgresStore, InstanceId], statement: str
) -> None:
    store, _ = filled
    id = "00000000-0000-7000-8000-000000000000"
    since = await store.inspect.now()
    rest = [] if statement == "before_copy" else [id, id, since]
    plan = await explain(store._parts.connection, getattr(SQL, statement), ["noop", "other"], *rest)
    indexes = {index for _, index in scans_of(plan, "job")}
    assert indexes == {"job_one_pending_per_key", "job_running_beside_live"}
    assert pages(plan) < 1_000


async def test_those_ahead_are_counted_without_a_step_over_what_is_not_due(
    filled: tuple[PostgresStore, InstanceId],
) -> None:
    store, _ = filled
    ahead = statements("drumbeat").inspect.count_ahead
    now, limit = await store.inspect.now(), 1_000
    plan = await explain(
        store._parts.connection, ahead, "default", "", 9, now, "00000000-0000-7000-8000-000000000000", limit
    )
    assert {kind for kind, _ in scans_of(plan, "job")} <= {"Index Scan", "Index Only Scan"}
    assert {index for _, index in scans_of(plan, "job")} == {"job_for_claim"}
    assert pages(plan) < 5 * limit


async def test_those_who_run_are_found_though_most_did_when_statistics_were_taken(
    filled: tuple[PostgresStore, InstanceId], raw: Any
) -> None:
    store, instance = filled
    await raw.execute("UPDATE drumbeat.job SET state = 'running', instance = $1, token = 7, claimed_at = 7", instance)
    await raw.execute("ANALYZE drumbeat.job")
    await raw.execute("UPDATE drumbeat.job SET state = 'pending', instance = NULL WHERE priority = 0", timeout=300)
    await raw.execute("DELETE FROM drumbeat.job WHERE state = 'running'", timeout=300)
    await raw.execute("VACUUM drumbeat.job", timeout=300)
    plan = await explain(store._parts.report_connection, statements("drumbeat").search.small_running, None, 2_000)
    assert {index for _, index in scans_of(plan, "job")} == {"job_of_instance"}
    assert pages(plan) < 100


@pytest.mark.parametrize("link", ["claim_connection", "connection"])
async def test_a_finish_goes_by_the_primary_key(filled: tuple[PostgresStore, InstanceId], raw: Any, link: str) -> None:
    store, instance = filled
    plan = await explain(
        getattr(store._parts, link), SQL.report_and_claim, *claim_arguments(instance, await held_ids(raw, instance), 0)
    )
    scans = scans_of(plan, "job")
    assert {index for _, index in scans if index} == {"job_pkey"}
    assert "Seq Scan" not in {kind for kind, _ in scans}
    assert pages(plan) < 60 * HELD


@pytest.mark.parametrize("statement", [SQL.lock_live, SQL.request_cancel], ids=["lock", "request_cancel"])
async def test_a_cancel_goes_by_the_primary_key(
    filled: tuple[PostgresStore, InstanceId], raw: Any, statement: str
) -> None:
    store, instance = filled
    plan = await explain(store._parts.connection, statement, await held_ids(raw, instance))
    assert {index for _, index in scans_of(plan, "job") if index} == {"job_pkey"}
    assert pages(plan) < 60 * HELD


async def test_cancelling_pending_jobs_goes_by_the_primary_key(
    filled: tuple[PostgresStore, InstanceId], raw: Any
) -> None:
    store, _ = filled
    ids = [row[0] for row in await raw.fetch("SELECT id::text FROM drumbeat.job WHERE instance IS NULL LIMIT 500")]
    none = [None] * len(ids)
    plan = await explain(
        store._parts.connection, SQL.move_to_history, ids, ["cancelled"] * len(ids), none, none, none, none, none, none
    )
    assert {index for _, index in scans_of(plan, "job") if index} == {"job_pkey"}
    assert pages(plan) < 60 * HELD


async def test_giving_back_goes_by_the_primary_key(filled: tuple[PostgresStore, InstanceId], raw: Any) -> None:
    store, instance = filled
    ids = await held_ids(raw, instance)
    none, zero = [None] * len(ids), [0] * len(ids)
    plan = await explain(
        store._parts.claim_connection, SQL.requeue, ids, zero, zero, zero, [""] * len(ids), none, none, none, none, none
    )
    assert {index for _, index in scans_of(plan, "job") if index} == {"job_pkey"}
    assert pages(plan) < 80 * HELD


async def test_an_empty_claim_behind_future_jobs_touches_next_to_nothing(
    filled: tuple[PostgresStore, InstanceId], raw: Any
) -> None:
    store, instance = filled
    await raw.execute("DELETE FROM drumbeat.job WHERE priority = 5", timeout=300)
    await raw.execute("VACUUM drumbeat.job", timeout=300)
    plan = await explain(store._parts.claim_connection, SQL.report_and_claim, *claim_arguments(instance, [], HELD))
    assert pages(plan) < 300


async def test_the_same_connection_stays_quick_when_the_table_was_empty_at_first(url: str, raw: Any) -> None:
    """Prepared while nothing was there; a generic plan would be kept from then on."""
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        wanted = ClaimRequest(queues=(("default", HELD),), limit=HELD)
        for _ in range(8):
            await store.jobs.report_and_claim(instance, [], wanted)
        await raw.execute(FILL, MANY, timeout=300)
        before = await count_touched_pages(raw)
        answer = await store.jobs.report_and_claim(instance, [], wanted)
        assert len(answer.jobs) == HELD
        outcomes = [Outcome(id=job.id, token=job.token, kind=OutcomeKind.SUCCEEDED) for job in answer.jobs]
        assert (await store.jobs.report_and_claim(instance, outcomes, None)).statuses == ["applied"] * HELD
        await store._parts.claim_connection.close()
        assert await count_touched_pages(raw) - before < 200 * HELD


async def test_a_link_plans_as_usual_again_after_an_exchange(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    asked = "SELECT name, setting FROM pg_settings WHERE name = 'plan_cache_mode' OR name LIKE 'enable_%' ORDER BY name"

    async def settings(plans: PlanMode) -> list[Any]:
        return await postgres._parts.connection.call(lambda session: session.fetch(asked), plan_mode=plans)

    usual, once = await settings(PlanMode.DEFAULT), await settings(PlanMode.GENERIC)
    assert once == await postgres._parts.claim_connection.call(lambda session: session.fetch(asked)) != usual
    assert await settings(PlanMode.ANY) == once
    await postgres.instances.heartbeat(instance, 0)
    assert await settings(PlanMode.ANY) == usual


async def count_touched_pages(raw: Any) -> int:
    """Pages of the job table and its indexes that anybody has touched so far."""
    await raw.execute("SELECT pg_stat_clear_snapshot()")
    found: int = await raw.fetchval(
        "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables"
        " WHERE schemaname = 'drumbeat' AND relname = 'job'"
    )
    return found
