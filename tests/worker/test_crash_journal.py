"""What a worker has started is known to its supervisor, wherever the worker died."""

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

marks = CrashJournal.create(sys.argv[1], slots=2, width=3)
marks.set_instance(InstanceId("busy"))
for number in itertools.count(1):
    holds = [ClaimRef(f"{number:036d}", number) for _ in range(1 + number % 3)]
    marks.clear(number % 2)
    marks.record_start(number % 2, holds)
"""


def holds(count: int) -> list[ClaimRef]:
    return [ClaimRef(id, 1_763_196_000_000_000 + number) for number, id in enumerate(new_job_ids(count))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def seen(path: Path) -> tuple[InstanceId | None, list[ClaimRef]]:
    marks = CrashJournal.open(path)
    assert marks is not None
    return marks.read()


def test_what_has_started_is_read_with_whose_it_is(path: Path) -> None:
    marks, instance, (one, two) = CrashJournal.create(path, slots=3, width=1), new_instance_id(), holds(2)
    marks.set_instance(instance)
    marks.record_start(0, [one])
    marks.record_start(2, [two])
    assert seen(path) == (instance, [one, two])


def test_what_was_cleared_is_not_read(path: Path) -> None:
    marks, (one, two) = CrashJournal.create(path, slots=2, width=1), holds(2)
    marks.record_start(0, [one])
    marks.record_start(1, [two])
    marks.clear(0)
    assert seen(path) == (None, [two])


def test_all_jobs_of_a_batch_are_read(path: Path) -> None:
    marks, batch = CrashJournal.create(path, slots=2, width=500), holds(500)
    marks.record_start(1, batch)
    assert seen(path) == (None, batch)


def test_a_smaller_batch_leaves_nothing_of_a_larger_one(path: Path) -> None:
    marks, batch = CrashJournal.create(path, slots=1, width=5), holds(5)
    marks.record_start(0, batch)
    marks.clear(0)
    marks.record_start(0, batch[3:])
    assert seen(path) == (None, batch[3:])


def test_slots_do_not_touch_each_other(path: Path) -> None:
    marks, (first, *batch) = CrashJournal.create(path, slots=2, width=4), holds(5)
    marks.record_start(1, [first])
    marks.record_start(0, batch)
    marks.clear(0)
    assert seen(path) == (None, [first])


def test_a_worker_that_died_before_making_marks_has_none(path: Path) -> None:
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
        until_sync(path.exists, what="the worker's marks")
        until_sync(lambda: dice.random() < 0.2, what="a moment to strike")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        marks = CrashJournal.open(path)
        assert marks is not None
        instance, started = marks.read()
        assert instance in (None, "busy")
        assert all(int(hold.id) == hold.token for hold in started)
        assert all(started.count(hold) == 1 + hold.token % 3 for hold in started)
        found += len(started)
    assert found, "no worker had come to its first job: this test proves nothing"


def test_an_unsupervised_worker_marks_nothing() -> None:
    marks = NullCrashJournal()
    marks.set_instance(new_instance_id())
    marks.record_start(0, holds(1))
    marks.clear(0)
    assert marks.read() == (None, [])
