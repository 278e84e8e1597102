"""The helper that waits: it returns what came true, and fails by name when nothing does."""

import ctypes
import time

import pytest

from tests.waiting import Stalls, until, until_sync, within


async def test_until_returns_what_the_predicate_found() -> None:
    answers = iter([None, 0, "found"])
    assert await until(lambda: next(answers)) == "found"


async def test_until_awaits_an_async_predicate() -> None:
    answers = iter([False, False, 7])

    async def predicate() -> int:
        return next(answers)

    assert await until(predicate) == 7


async def test_until_names_what_did_not_come() -> None:
    with pytest.raises(AssertionError, match=r"the worker's exit did not come true within 0.02 s; last seen: \[\]"):
        await until(list, deadline=0.02, what="the worker's exit")


def test_until_sync_does_the_same_without_a_loop() -> None:
    answers = iter([0, 0, 3])
    assert until_sync(lambda: next(answers)) == 3
    with pytest.raises(AssertionError, match="a beat did not come true"):
        until_sync(lambda: False, deadline=0.02, what="a beat")


def test_what_takes_longer_than_was_promised_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stalls, "seconds", 0.0)
    with pytest.raises(AssertionError, match="it took"), within(0.01):
        passing(0.05)


def test_a_promise_does_not_count_the_time_in_which_nobody_could_go_on() -> None:
    """A function in C that keeps the interpreter's lock is to other threads what a machine is that stands still."""
    with within(0.1):
        ctypes.PyDLL(None).usleep(200_000)


def passing(seconds: float) -> None:
    end = time.monotonic() + seconds
    until_sync(lambda: time.monotonic() > end)
