"""The helper that waits: it returns what came true, and fails by name when nothing does."""

import pytest

from tests.waiting import until, until_sync


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
