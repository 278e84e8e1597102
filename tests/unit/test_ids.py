"""Ids of jobs and instances: form, order, and no two alike, whatever the clock, thread or process."""

import os
import threading
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat import ids
from drumbeat.clock import SYSTEM
from drumbeat.ids import JobId, created_us, is_job_id, new_instance_id, new_job_id, new_job_ids


def test_a_job_id_is_a_canonical_uuid_of_version_7() -> None:
    for id in [new_job_id(), *new_job_ids(3), new_job_id(1_700_000_000_000_000)]:
        parsed = uuid.UUID(id)
        assert str(parsed) == id
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
        assert is_job_id(id)


def test_an_id_tells_when_it_was_made() -> None:
    before = SYSTEM.now_us() // 1_000 * 1_000
    id = new_job_id()
    assert before <= created_us(id) <= SYSTEM.now_us()
    assert created_us(new_job_id(1_700_000_000_123_456)) == 1_700_000_000_123_000


@given(st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=50))
@settings(deadline=None)
def test_ids_of_given_times_sort_by_time_and_then_as_made(moments: list[int]) -> None:
    moments.sort()
    made = [new_job_id(ms * 1_000) for ms in moments]
    assert made == sorted(set(made))
    assert [created_us(id) for id in made] == [ms * 1_000 for ms in moments]


def test_ids_sort_in_the_order_made_also_within_a_millisecond() -> None:
    made = [*new_job_ids(1_000), *(new_job_id() for _ in range(5_000)), *new_job_ids(1_000), new_job_id()]
    assert made == sorted(set(made))


def test_ids_keep_their_order_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_job_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_600_000_000_000_000_000)  # type: ignore[attr-defined]
    assert first < new_job_id() < new_job_ids(2)[1]


def test_a_given_time_does_not_move_the_ids_of_the_real_one() -> None:
    new_job_id(2**47 * 1_000)
    assert abs(created_us(new_job_id()) - SYSTEM.now_us()) < 60_000_000


def test_threads_never_make_the_same_id() -> None:
    made: list[JobId] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        made.extend([new_job_id() for _ in range(2_000)] + new_job_ids(100))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 8 * 2_100


def test_a_forked_child_does_not_repeat_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock stands still, so that only the random part can tell parent and child apart.
    now_ns = SYSTEM.now_us() * 1_000
    monkeypatch.setattr(ids.time, "time_ns", lambda: now_ns)  # type: ignore[attr-defined]
    new_job_id()
    with ids._system_generator.lock:  # as if another thread were making one: the child must not wait for it
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, "".join(new_job_ids(50)).encode())
            finally:
                os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    theirs = {text[start : start + 36] for start in range(0, len(text), 36)}
    assert len(theirs) == 50
    assert theirs.isdisjoint(new_job_ids(1_000))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "0192f0c4-7a5e-4cc4-8f39-1eee21997fba",  # version 4
        "0192f0c4-7a5e-7cc4-cf39-1eee21997fba",  # another variant
        "0192F0C4-7A5E-7CC4-8F39-1EEE21997FBA",
        "0192f0c47a5e7cc48f391eee21997fba",
        "0192f0c4-7a5e-7cc4-8f39-1eee21997fba\n",
    ],
)
def test_other_text_is_no_job_id(text: str) -> None:
    assert not is_job_id(text)
    with pytest.raises(ValueError, match="not a job id"):
        created_us(JobId(text))


def test_no_ids_are_made_when_none_are_asked_for() -> None:
    assert new_job_ids(0) == []


def test_instance_ids_are_short_and_differ() -> None:
    made = {new_instance_id() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(len(id) == 16 and int(id, 16) >= 0 for id in made)
