"""A worker that is stopped for so long that others have its job cannot commit what it has written when it wakes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumbeat.core.job import JobState
from tests.apps import journal, ledger
from tests.callers import caller
from tests.system.workers import Cluster
from tests.waiting import until


@pytest.fixture
def cluster(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, "tests.apps.ledger")
    cluster.url = store_url
    monkeypatch.setenv("DRUMBEAT_URL", store_url)
    monkeypatch.setenv(journal.FILE, str(cluster.journal))
    ledger.app.configure({"url": store_url})
    yield cluster
    cluster.end()


@pytest.mark.parametrize(
    ("engine", "inside"),
    [
        ("sqlite", False),  # inside, it would hold the only lock there is
        ("postgres", False),
        ("postgres", True),
    ],
)
async def test_a_frozen_handlers_transaction_is_refused(cluster: Cluster, store_url: str, inside: bool) -> None:
    app = ledger.app
    async with app, caller(store_url) as program:
        first = cluster.start()
        job = await ledger.freezes.enqueue(7, str(cluster.gate()), inside)
        cluster.wait_for("started", deadline=60)
        first.send_signal(signal.SIGSTOP)
        second = cluster.start()
        cluster.wait_for("committed", deadline=60)
        cluster.gate().touch()
        first.send_signal(signal.SIGCONT)
        [refused] = cluster.wait_for("refused", deadline=60)
        record = await until(lambda: _ended(job), what="the job's end", deadline=60)
        assert await program.numbers() == [7]
    assert (refused.pid, "lease lost" in refused.facts["error"]) == (first.pid, True)
    assert [entry.pid for entry in cluster.entries("committed")] != [first.pid]
    assert (record.state, record.crashes) == (JobState.SUCCEEDED, 1)
    assert second.poll() is None


async def _ended(job: object) -> object:
    record = await job.job()  # type: ignore[attr-defined]
    return record if record.state is JobState.SUCCEEDED else None
