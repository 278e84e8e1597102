"""What the topologies judge by themselves, on small journals."""

import random
from pathlib import Path

import pytest

from tests.chaos.full_store import FullSpan, FullSpans
from tests.chaos.journal import Entry
from tests.chaos.lost_file import LostFile
from tests.chaos.rollback import Rollback, excuse_rollbacks
from tests.chaos.topologies import TOPOLOGIES, find_obstacle
from tests.proof import history as proof
from tests.proof.checkers import check
from tests.servers import stepped_clock
from tests.servers.redis import RedisServer
from tests.servers.stepped_clock import SteppedClock
from tests.waiting import until_sync

WINDOW = Rollback(start=10.0, end=11.0, first_token=10_000_000, last_token=11_000_000)


def entry(at: float, event: str, **facts: object) -> Entry:
    return Entry(round(at * 1e9), "node.1", 1, 1, event, facts)


def acknowledged(asked: float, answered: float, id: str = "a") -> list[Entry]:
    return [entry(asked, "asks", ids=[id]), entry(answered, "acknowledged", ids=[id], existing=[id])]


@pytest.mark.parametrize(
    ("asked", "answered", "is_lost"), [(9.0, 9.5, True), (9.0, 10.2, False), (10.5, 12.0, False), (11.5, 12.0, True)]
)
def test_a_rollback_excuses_the_loss_of_what_was_told_in_its_window_and_of_nothing_else(
    asked: float, answered: float, is_lost: bool
) -> None:
    history = proof.History(enqueued=[proof.Enqueued(id="a", at=asked, acknowledged=True)])
    excuse_rollbacks(acknowledged(asked, answered), history, [WINDOW], patience=1.0)
    assert bool(check(history)) == is_lost


@pytest.mark.parametrize(("token", "is_excused"), [(9_999_999, False), (10_500_000, True), (11_000_001, False)])
def test_a_rollback_excuses_runs_whose_claim_it_has_undone(token: int, is_excused: bool) -> None:
    history = proof.History(
        enqueued=[proof.Enqueued(id="a", at=1.0, acknowledged=True)],
        started=[proof.Started(run=1, job="a", token=token, node="node.1", at=10.6)],
        jobs=[proof.JobRecord(id="a", task="quick", state="cancelled", failures=0, crashes=0)],
    )
    excuse_rollbacks([], history, [WINDOW], patience=1.0)
    assert (check(history) == []) == is_excused


@pytest.mark.parametrize(
    ("asked", "answered", "is_refused"), [(10.5, 10.6, True), (9.9, 10.6, False), (10.5, 12.1, False)]
)
def test_a_full_store_that_accepts_a_job_is_found(asked: float, answered: float, is_refused: bool) -> None:
    spans = FullSpans()
    spans.spans.append(FullSpan("fill disk", 10.0, 12.0))
    found = spans.judge([entry(11.0, "ended", run=1), *acknowledged(asked, answered)], notice=0.0)
    assert bool(found) == is_refused


@pytest.mark.parametrize(("parent", "is_lost"), [("succeeded", True), ("dead", False)])
def test_a_full_store_excuses_a_child_that_is_gone_only_if_a_parent_has_failed(parent: str, is_lost: bool) -> None:
    spans = FullSpans()
    spans.spans.append(FullSpan("fill memory", 10.0, 12.0))
    history = proof.History(
        enqueued=[proof.Enqueued(id=id, at=1.0, acknowledged=True) for id in ("parent", "child", "below")],
        depends=[
            proof.Depends(parent="parent", child="child", if_fails="cancel"),
            proof.Depends(parent="child", child="below", if_fails="wait"),
        ],
        jobs=[proof.JobRecord(id="parent", task="node", state=parent, failures=0, crashes=0)],
    )
    spans.excuse_missing_records(history)
    assert any(found.startswith("J1") for found in check(history)) == is_lost


def test_a_full_store_in_which_no_job_ends_is_found() -> None:
    spans = FullSpans()
    spans.spans.append(FullSpan("fill disk", 10.0, 12.0))
    assert spans.judge([entry(13.0, "ended", run=1)], notice=0.0) == ["O2: no job has ended while the store was full"]


def test_a_lost_file_that_takes_jobs_in_silence_is_found(tmp_path: Path) -> None:
    store = LostFile(tmp_path, random.Random(0))
    store._spans.append((10.0, 12.0))
    store._judged = 1
    found = store.judge(acknowledged(10.5, 10.6), proof.History())
    assert len(found) == 2 and "no client was told" in found[0] and "nobody can find" in found[1]
    store._violations.clear()
    told = entry(11.0, "refused", error="StoreLost: deleted")
    assert store.judge([told, *acknowledged(9.0, 9.5)], proof.History()) == []


def test_a_topology_that_does_not_fit_an_engine_says_so() -> None:
    assert find_obstacle("promotion", "sqlite") == "there is no such thing on sqlite"
    assert set(TOPOLOGIES["plain"]) == {"sqlite", "postgres", "redis"}


@pytest.mark.parametrize(
    ("ended", "result", "is_lost"), [(11.0, '"x"', False), (11.0, None, True), (13.0, '"x"', True)]
)
def test_only_jobs_that_have_succeeded_in_a_full_redis_may_be_gone(
    ended: float, result: str | None, is_lost: bool
) -> None:
    spans = FullSpans()
    spans.spans.append(FullSpan("fill memory", 10.0, 12.0))
    history = proof.History(
        enqueued=[proof.Enqueued(id="a", at=1.0, acknowledged=True)],
        started=[proof.Started(run=1, job="a", token=1, node="node.1", at=ended - 0.1)],
        ended=[proof.Ended(run=1, at=ended, result=result)],
    )
    spans.excuse_missing_records(history)
    assert bool(check(history)) == is_lost


@pytest.mark.skipif(stepped_clock.find_obstacle() is not None, reason="needs a C compiler")
def test_a_server_goes_by_its_stepped_clock() -> None:
    clock, server = SteppedClock(), RedisServer()
    server.environment |= clock.environment
    try:
        with server:
            before = server.ask("TIME")[0]
            clock.step(-3_000)
            # Valkey 9 looks at the clock between commands, not in each.
            until_sync(lambda: -3_001 <= server.ask("TIME")[0] - before <= -2_980)
    finally:
        clock.remove()
