"""The hot statements by their plans, and by what they cost behind a hundred thousand rows that do not matter.

A plan is looked at on an empty database (as prepared by a worker that starts first) and on a filled, analysed one.
"""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat.store.sqlfile import repeat_row
from drumbeat.store.sqlite import schema
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.statements import SQL

MANY = 100_000
NOW = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "plans.db"
    db = SqliteConnection(path, read_only=False)
    schema.upgrade(db, "drumbeat")
    db.close()
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 future jobs of the most urgent priority, 100,000 that wait, all in the queue that is claimed from."""
    path = tmp_path_factory.mktemp("filled") / "plans.db"
    db = SqliteConnection(path, read_only=False)
    schema.upgrade(db, "drumbeat")
    db.close()
    raw = sqlite3.connect(path)
    columns = (
        "id, task, queue, priority, args, signature, created_at, due_at, run_at, crash_limit, blocked_on, blocked_since"
    )
    raw.executemany(
        f"INSERT INTO drumbeat_job ({columns}) VALUES (?, 'noop', 'default', ?, '{{}}', 's', 1, 1, ?, 3, ?, ?)",
        (
            row
            for number in range(MANY)
            for row in (
                (f"f{number:08}", 0, NOW + 1_000_000 + number, None, None),
                (f"w{number:08}", 0, 1, "task:strange", 5),
            )
        ),
    )
    raw.execute(
        "INSERT INTO drumbeat_instance (id, app, version, host, pid, roles, queues, tasks, concurrency, started_at,"
        " beat_at) VALUES ('me', '', '', '', 1, '[]', '[]', '{}', 1, 1, 1)"
    )
    raw.execute("ANALYZE")
    raw.commit()
    raw.close()
    return path


@pytest.fixture(params=["empty", "filled"])
def raw(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(request.getfixturevalue(request.param))
    yield connection
    connection.close()


PARAMETERS = (
    *(
        "queue",
        "now",
        "limit",
        "instance",
        "unblocks",
        "queues",
        "picked",
        "after",
        "ids",
        "holds",
        "seq",
        "keys",
        "state",
    ),
    *(
        "task",
        "key",
        "error",
        "before",
        "id",
        "prefix",
        "all",
        "seqs",
        "low",
        "high",
        "view",
        "schedule",
        "priority",
        "run_at",
        "lowest_token",
    ),
)


def explain(raw: sqlite3.Connection, statement: str) -> list[str]:
    names = dict.fromkeys([*PARAMETERS, *re.findall(r":(\w+)", statement)])
    numbered = set(re.findall(r"\?\d", statement))
    given = names if ":" in statement else [None] * (len(re.findall(r"\?(?!\d)", statement)) + len(numbered))
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", given)]


def assert_no_sort_and_no_scan(steps: list[str]) -> None:
    for step in steps:
        assert "TEMP B-TREE" not in step, steps
        if step.startswith("SCAN"):
            small = (
                "level",
                "queue",
                "wanted",
                "picked",
                "ended",
                "back",
                "note",
                "json_each",
                "waiting",
                "(",
                "CONSTANT",
                "instance",
                "pruned",
                "history USING INTEGER PRIMARY KEY",
                "MATERIALIZED",
                "column",
                "drumbeat_release",
            )
            assert any(word in step for word in small), steps


def test_pick_walks_the_claim_index_level_by_level_without_sorting(raw: sqlite3.Connection) -> None:
    steps = explain(raw, SQL.jobs.pick)
    assert_no_sort_and_no_scan(steps)
    assert any("drumbeat_job_for_claim (queue=? AND lane=? AND priority=? AND run_at<?)" in step for step in steps), (
        steps
    )


def test_next_due_is_a_seek_for_each_queue_and_level(raw: sqlite3.Connection) -> None:
    steps = explain(raw, SQL.jobs.next_due)
    assert_no_sort_and_no_scan(steps)
    assert any(
        "INDEX drumbeat_job_for_claim (queue=? AND lane=? AND priority=? AND run_at>? AND run_at<?)" in step
        for step in steps
    ), steps


def test_releases_are_followed_in_their_order_without_sorting(raw: sqlite3.Connection) -> None:
    for statement in (SQL.dependencies.to_follow, SQL.dependencies.page_of_results, SQL.dependencies.met):
        assert_no_sort_and_no_scan([step for step in explain(raw, statement) if step != "SCAN release"])


def test_those_ahead_are_counted_in_the_claim_index_level_by_level(raw: sqlite3.Connection) -> None:
    steps = explain(raw, SQL.inspect.ahead)
    assert_no_sort_and_no_scan(steps)
    walks = [
        step for step in steps if "drumbeat_job_for_claim (queue=? AND lane=? AND priority=? AND run_at<?)" in step
    ]
    assert len(walks) == 2, steps


def test_waiting_jobs_are_reached_by_what_they_wait_for(raw: sqlite3.Connection) -> None:
    steps = explain(raw, SQL.jobs.pick_unblocked)
    assert_no_sort_and_no_scan(steps)
    seek = "drumbeat_job_blocked (blocked_on=? AND queue=? AND priority=? AND run_at<?)"
    assert any(seek in step for step in steps), steps
    for statement in (SQL.jobs.pick_unblocked, SQL.instances.heartbeat_reply, SQL.jobs.expired_waits):
        jumps = [step for step in explain(raw, statement) if "(blocked_on>?)" in step]
        assert jumps, "distinct values by jumping from one to the next"


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (SQL.jobs.claim, "INTEGER PRIMARY KEY (rowid=?)"),
        (SQL.jobs.claimed_jobs, "job USING INTEGER PRIMARY KEY (rowid=?)"),
        (SQL.jobs.move_to_history, "job USING INDEX drumbeat_job_pkey (id=?)"),
        (SQL.jobs.delete_finished, "job USING COVERING INDEX drumbeat_job_pkey (id=?)"),
        (SQL.jobs.delete_finished, "history USING INTEGER PRIMARY KEY (rowid>?)"),
        (SQL.jobs.delete_jobs, "drumbeat_job_pkey (id=?)"),
        (SQL.jobs.insert_dead_letters, "job USING INDEX drumbeat_job_pkey (id=?)"),
        (SQL.jobs.requeue, "drumbeat_job USING INDEX drumbeat_job_pkey (id=?)"),
        (SQL.jobs.save_progress, "drumbeat_job_pkey (id=?)"),
        (SQL.jobs.held, "drumbeat_job_pkey (id=?)"),
        (SQL.jobs.held_by, "drumbeat_job_of_instance (instance=?)"),
        (SQL.jobs.list_running, "drumbeat_job_of_instance (instance=?)"),
        (SQL.jobs.live_ids_of_keys, "drumbeat_job_by_key (task=? AND key=?)"),
        (SQL.jobs.unique_holders, "drumbeat_job_by_key (task=? AND key=?)"),
        (SQL.jobs.end_pending, "drumbeat_job_pkey (id=?)"),
        (SQL.jobs.request_cancel, "drumbeat_job_pkey (id=?)"),
        (SQL.jobs.run_now, "drumbeat_job_pkey (id=?)"),
        (SQL.jobs.results, "drumbeat_history_pkey (id=?)"),
        (SQL.jobs.expired_waits, "drumbeat_job_blocked_since (blocked_on=? AND blocked_since<?)"),
        (SQL.jobs.expired, "drumbeat_job_expiring (expires_at"),
        (SQL.jobs.insert, "drumbeat_history_pkey (id=?)"),
        (SQL.instances.heartbeat_reply, "drumbeat_job_of_instance (instance=?)"),
        (SQL.search.live_scan, "drumbeat_job_pkey (id>? AND id<?)"),
        (SQL.search.live_filter, "drumbeat_job_pkey (id=?)"),
        (SQL.search.history_scan, "drumbeat_history_pkey (id>? AND id<?)"),
        (SQL.search.history_scan_of_task, "drumbeat_history_by_task (task=? AND id>? AND id<?)"),
        (SQL.search.history_scan_of_key, "drumbeat_history_by_key (key=? AND id>? AND id<?)"),
        (SQL.search.history_filter, "drumbeat_history_pkey (id=?)"),
        (SQL.search.dead_scan, "drumbeat_dead USING PRIMARY KEY (id>? AND id<?)"),
        (SQL.search.dead_scan_of_task, "drumbeat_dead_by_task (task=? AND id>? AND id<?)"),
        (SQL.search.small_of_key, "drumbeat_job_by_key (task=? AND key=?)"),
        (SQL.search.small_of_key, "drumbeat_job_by_key (task>?)"),
        (SQL.search.small_ready, "drumbeat_job_for_claim (queue=? AND lane=? AND priority=? AND run_at<?)"),
        (SQL.search.small_future, "drumbeat_job_for_claim (queue=? AND lane=? AND priority=? AND run_at>?)"),
        (SQL.search.small_retrying, "drumbeat_job_retrying (run_at>?)"),
        (SQL.search.small_unsucceeded, "drumbeat_history_not_succeeded (state>? AND state<?)"),
        (SQL.inspect.tasks, "COVERING INDEX drumbeat_history_by_task"),
        (SQL.search.live_scan_of_workflow, "drumbeat_job_by_workflow (workflow=? AND id>? AND id<?)"),
        (SQL.search.history_scan_of_workflow, "drumbeat_history_by_workflow (workflow=? AND id>? AND id<?)"),
        (SQL.search.dead_scan_of_workflow, "drumbeat_dead_by_workflow (workflow=? AND id>? AND id<?)"),
        (SQL.dependencies.parents, "job USING INDEX drumbeat_job_pkey (id=?)"),
        (SQL.dependencies.parents, "history USING INDEX drumbeat_history_pkey (id=?)"),
        (SQL.dependencies.flag_parents, "drumbeat_job_pkey (id=?)"),
        (SQL.dependencies.to_follow, "edge USING PRIMARY KEY (parent=? AND child>?)"),
        (SQL.dependencies.set_followed, "edge USING PRIMARY KEY (parent=? AND child>?)"),
        (SQL.dependencies.delete_releases, "INTEGER PRIMARY KEY (rowid<?)"),
        (SQL.dependencies.meet, "drumbeat_job_pkey (id=?)"),
        (SQL.dependencies.met, "drumbeat_job_pkey (id=?)"),
        (SQL.dependencies.cancel_children, "drumbeat_job_pkey (id=?)"),
        (SQL.dependencies.edges_of_children, "drumbeat_edge_of_child (child=?)"),
        (SQL.dependencies.single_results, "drumbeat_edge_single (child=?)"),
        (SQL.dependencies.first_results, "drumbeat_edge_paged (child=? AND argument>?)"),
        (SQL.dependencies.page_of_results, "drumbeat_edge_paged (child=? AND argument=? AND place>?)"),
        (SQL.dependencies.parents_of_waiting, "drumbeat_job_blocked (blocked_on=?)"),
        (SQL.dependencies.pruned_edges, "drumbeat_edge_of_child (child=?)"),
        (SQL.dependencies.delete_edges, "PRIMARY KEY (parent=? AND child=?)"),
        (SQL.dependencies.delete_results, "drumbeat_edge_bound (parent=?)"),
        (SQL.workflows.find_named, "drumbeat_workflow_by_name (name=? AND id<?)"),
        (SQL.workflows.counts, "drumbeat_job_by_workflow (workflow=?)"),
        (SQL.workflows.job_ids, "drumbeat_history_by_workflow (workflow=? AND id>?)"),
        (SQL.workflows.delete_empty, "drumbeat_history_by_workflow (workflow=?)"),
    ],
)  # fmt: skip
def test_statements_use_their_index(raw: sqlite3.Connection, statement: str, index: str) -> None:
    steps = explain(raw, repeat_row(statement, 8) if "VALUES (?" in statement else statement)
    assert any(index in step for step in steps), steps


async def test_rows_that_do_not_matter_cost_a_claim_nothing(filled: Path, empty: Path) -> None:
    """Counted in SQLite's own steps, so that a busy machine does not matter."""

    def work(path: Path) -> int:
        raw = sqlite3.connect(path, isolation_level=None)
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        given = {"queue": "default", "now": NOW, "limit": 500, "instance": "me", "queues": '["default"]', "after": NOW}
        raw.set_progress_handler(tick, 10)
        raw.execute(SQL.jobs.pick, given).fetchall()
        raw.execute(SQL.jobs.next_due, given).fetchall()
        raw.execute(SQL.jobs.pick_unblocked, given | {"unblocks": '["task:mine"]', "in_lanes": False}).fetchall()
        raw.execute(SQL.instances.heartbeat_reply, {"id": "me", "now": NOW}).fetchall()
        raw.close()
        return count

    assert work(filled) < work(empty) + 100
