"""The samples of a run as series."""

import os
import threading

import pytest

from tests.soak.sampler import MIB, TOLERANCES, SeriesSet, find_tolerance, measure_process


def test_a_thread_and_a_descriptor_more_are_seen() -> None:
    before = measure_process(os.getpid())
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    read, write = os.pipe()
    after = measure_process(os.getpid(), [os.getpid(), 2**22 + 1])
    over.set()
    thread.join()
    os.close(read)
    os.close(write)
    assert after["threads"] == before["threads"] + 1
    assert after["descriptors"] == before["descriptors"] + 2
    assert after["children"] == 2
    assert after["largest child's rss"] >= after["rss"] > MIB


def test_a_process_that_is_gone_has_no_sample() -> None:
    with pytest.raises(OSError, match="No such"):
        measure_process(2**22 + 1)


@pytest.mark.parametrize(
    ("series", "kind"),
    [
        ("worker-1 rss", "rss"),
        ("rows of history", "rows"),
        ("bytes of rollup", "bytes"),
        ("wal bytes", "wal bytes"),
        ("members of keys", "members"),
        ("keys of interval", "keys"),
    ],
)
def test_a_series_is_judged_by_its_kind(series: str, kind: str) -> None:
    assert find_tolerance(series) is TOLERANCES[kind]


def test_keys_that_come_late_and_grow_are_judged_from_the_start() -> None:
    samples = SeriesSet(absent_is_zero=True)
    for at in range(60):
        samples.add(at, {"keys of job": 5.0} | ({"keys of leak": 10.0 * at} if at > 30 else {}))
    assert {name: verdict.flat for name, verdict in samples.judge_all().items()} == {
        "keys of job": True,
        "keys of leak": False,
    }


def test_a_process_that_is_restarted_has_fewer_samples() -> None:
    samples = SeriesSet()
    for at in range(60):
        samples.add(at, {} if at % 10 == 0 else {"worker-1 threads": 7.0})
    assert len(samples.list_samples("worker-1 threads")) == 54
    assert samples.judge_all()["worker-1 threads"].flat


def test_the_times_of_restarts_reach_the_verdict() -> None:
    samples = SeriesSet()
    for at in range(0, 1_800, 10):
        samples.add(at, {"connections": 14 + at % 180 * 0.4})
    restarts = [float(at) for at in range(180, 1_700, 180)]
    assert samples.judge_all()["connections"].flat
    assert not samples.judge_all(restarts)["connections"].flat
