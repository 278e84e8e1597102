import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from drumbeat.events import Event, Events, StoreDown, StoreUp
from drumbeat.ids import InstanceId

ME = InstanceId("0123456789abcdef")
DOWN = StoreDown(instance=ME, url="sqlite:////x.db", reason="gone")
UP = StoreUp(instance=ME, url="sqlite:////x.db", after=2.0)


def test_a_subscriber_hears_its_kind_and_no_other() -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(StoreDown, heard.append)
    events.emit(DOWN)
    events.emit(UP)
    assert heard == [DOWN]


def test_a_subscriber_of_the_root_hears_everything() -> None:
    events, heard = Events(), list[Event]()
    events.subscribe(Event, heard.append)
    events.emit(DOWN)
    events.emit(UP)
    assert heard == [DOWN, UP]


def test_an_event_is_wanted_only_while_somebody_listens() -> None:
    events, heard = Events(), list[Event]()
    assert not events.has_subscribers(StoreDown)
    events.subscribe(StoreDown, heard.append)
    assert events.has_subscribers(StoreDown)
    assert not events.has_subscribers(StoreUp)
    events.unsubscribe(StoreDown, heard.append)
    assert not events.has_subscribers(StoreDown)


def test_a_failing_subscriber_is_logged_and_the_next_one_still_hears(caplog: pytest.LogCaptureFixture) -> None:
    events, heard = Events(), list[Event]()

    def broken(event: StoreDown) -> None:
        raise RuntimeError("mine")

    events.subscribe(StoreDown, broken)
    events.subscribe(StoreDown, heard.append)
    with caplog.at_level(logging.ERROR):
        events.emit(DOWN)
    assert heard == [DOWN]
    assert "subscriber failed" in caplog.text
    assert "mine" in caplog.text


async def test_an_async_subscriber_runs_in_the_workers_group(caplog: pytest.LogCaptureFixture) -> None:
    events, heard = Events(), list[Event]()

    async def hear(event: StoreDown) -> None:
        heard.append(event)

    async def broken(event: StoreDown) -> None:
        raise RuntimeError("mine")

    events.subscribe(StoreDown, broken)
    events.subscribe(StoreDown, hear)
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[Any, Any, object]) -> None:
            group.create_task(work)

        with events.spawn_with(spawn):
            events.emit(DOWN)
    assert heard == [DOWN]
    assert "mine" in caplog.text


def test_without_a_worker_an_async_subscriber_is_not_called_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    events, heard = Events(), list[Event]()

    async def hear(event: StoreDown) -> None:
        heard.append(event)

    events.subscribe(StoreDown, hear)
    events.emit(DOWN)
    assert heard == []
    assert "async subscriber not called" in caplog.text
