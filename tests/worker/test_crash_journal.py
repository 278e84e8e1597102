"""The supervisor knows what a worker had started, wherever it died."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumbeat.core.claim import ClaimRef
from drumbeat.ids import InstanceId, new_instance_id, new_job_ids
from drumbeat.worker.crash_journal import CrashJournal, NullCrashJournal
from tests.waiting import until_sync

# A worker that starts and clears, as fast as it can. Ids and tokens belong together: a torn record would show.
BUSY = """
import itertools, sys
from drumbeat.ids import InstanceId
from drumbeat.core.claim import ClaimRef
from drumbeat.worker.crash_journal import CrashJournal

journal = CrashJournal.create(sys.argv[1], slots=2, width=3)
journal.set_instance(InstanceId("busy"))
for number in itertools.count(1):
    claims = [ClaimRef(f"{number:036d}", number) for _ in range(1 + number % 3)]
    journal.clear(number % 2)
    journal.record_start(number % 2, claims)
"""


def claims(count: int) -> list[ClaimRef]:
    return [ClaimRef(id, 1_763_196_000_000_000 + number) for number, id in enumerate(new_job_ids(count))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def seen(path: Path) -> tuple[InstanceId | None, list[ClaimRef]]:
    journal = CrashJournal.open(path)
    assert journal is not None
    return journal.read()


def test_what_has_started_is_read_with_whose_it_is(path: Path) -> None:
    journal, instance, (one, two) = CrashJournal.create(path, slots=3, width=1), new_instance_id(), claims(2)
    journal.set_instance(instance)
    journal.record_start(0, [one])
    journal.record_start(2, [two])
    assert seen(path) == (instance, [one, two])


def test_what_was_cleared_is_not_read(path: Path) -> None:
    journal, (one, two) = CrashJournal.create(path, slots=2, width=1), claims(2)
    journal.record_start(0, [one])
    journal.record_start(1, [two])
    journal.clear(0)
    assert seen(path) == (None, [two])


def test_all_jobs_of_a_batch_are_read(path: Path) -> None:
    journal, batch = CrashJournal.create(path, slots=2, width=500), claims(500)
    journal.record_start(1, batch)
    assert seen(path) == (None, batch)


def test_a_smaller_batch_leaves_nothing_of_a_larger_one(path: Path) -> None:
    journal, batch = CrashJournal.create(path, slots=1, width=5), claims(5)
    journal.record_start(0, batch)
    journal.clear(0)
    journal.record_start(0, batch[3:])
    assert seen(path) == (None, batch[3:])


def test_slots_do_not_touch_each_other(path: Path) -> None:
    journal, (first, *batch) = CrashJournal.create(path, slots=2, width=4), claims(5)
    journal.record_start(1, [first])
    journal.record_start(0, batch)
    journal.clear(0)
    assert seen(path) == (None, [first])


def test_a_worker_that_died_before_creating_its_journal_has_none(path: Path) -> None:
    assert CrashJournal.open(path) is None


@pytest.mark.parametrize("content", [b"", b"drumbeat", bytes(4096)])
def test_a_file_that_is_not_complete_has_none(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert CrashJournal.open(path) is None


def test_a_worker_killed_anywhere_leaves_only_whole_records(path: Path) -> None:
    dice = random.Random(7)
    found = 0
    for _ in range(12):
        path.unlink(missing_ok=True)
        worker = subprocess.Popen([sys.executable, "-c", BUSY, path])
        until_sync(path.exists, what="the worker's journal")
        until_sync(lambda: dice.random() < 0.2, what="a random delay")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        journal = CrashJournal.open(path)
        assert journal is not None
        instance, started = journal.read()
        assert instance in (None, "busy")
        assert all(int(claim.id) == claim.token for claim in started)
        assert all(started.count(claim) == 1 + claim.token % 3 for claim in started)
        found += len(started)
    assert found, "no worker had come to its first job: this test proves nothing"


def test_an_unsupervised_worker_records_nothing() -> None:
    journal = NullCrashJournal()
    journal.set_instance(new_instance_id())
    journal.record_start(0, claims(1))
    journal.clear(0)
    assert journal.read() == (None, [])
