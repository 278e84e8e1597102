"""Who believes to lead, and for how long."""

import pytest

from drumbeat.clock import FakeClock
from drumbeat.controller.elector import Elector
from drumbeat.core.instance import Leader
from tests.controller.factories import ME, YOU, make_elector, make_reply


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_there_is_no_leader_before_the_store_names_one(clock: FakeClock) -> None:
    assert not make_elector(clock).is_leader


async def test_a_leader_is_trusted_for_the_lease_from_before_the_question(clock: FakeClock) -> None:
    me, asked_at = make_elector(clock), clock.monotonic()
    await clock.advance(4)
    me.on_heartbeat(ME, make_reply(leader=ME), asked_at)
    await clock.advance(5.9)
    assert me.is_leader
    await clock.advance(0.1)
    assert not me.is_leader


async def test_an_answer_that_took_longer_than_the_lease_makes_no_leader(clock: FakeClock) -> None:
    me, asked_at = make_elector(clock), clock.monotonic()
    await clock.advance(11)
    me.on_heartbeat(ME, make_reply(leader=ME), asked_at)
    assert not me.is_leader


@pytest.mark.parametrize("leader", [YOU, None])
def test_an_instance_that_is_not_named_follows_at_once(clock: FakeClock, leader: object) -> None:
    me = make_elector(clock)
    me.on_heartbeat(ME, make_reply(leader=ME), clock.monotonic())
    me.on_heartbeat(ME, make_reply(leader=leader), clock.monotonic())  # type: ignore[arg-type]
    assert not me.is_leader


def test_a_beat_without_an_answer_makes_a_follower(clock: FakeClock) -> None:
    me = make_elector(clock)
    me.on_heartbeat(ME, make_reply(leader=ME), clock.monotonic())
    me.on_missed_heartbeat()
    assert not me.is_leader
    me.on_heartbeat(ME, make_reply(leader=ME), clock.monotonic())
    assert me.is_leader


def test_the_wish_to_lead_is_the_lease_and_ends_with_the_resignation(clock: FakeClock) -> None:
    me = make_elector(clock)
    assert me.requested_lease_us() == 10_000_000
    me.resign()
    assert me.requested_lease_us() is None


async def test_a_resigned_leader_goes_on_until_another_leads_but_not_beyond_its_lease(clock: FakeClock) -> None:
    me = make_elector(clock)
    me.on_heartbeat(ME, make_reply(leader=ME), clock.monotonic())
    me.resign()
    me.on_heartbeat(ME, make_reply(), clock.monotonic())
    assert me.is_leader
    await clock.advance(10)
    assert not me.is_leader
    me.on_heartbeat(ME, make_reply(leader=ME), clock.monotonic())
    me.on_heartbeat(ME, make_reply(leader=YOU), clock.monotonic())
    assert not me.is_leader


def test_a_worker_only_never_wishes_to_lead(clock: FakeClock) -> None:
    assert make_elector(clock, is_candidate=False).requested_lease_us() is None


def test_a_change_is_reported_once(clock: FakeClock) -> None:
    told: list[Leader | None] = []
    me = Elector(clock, 10.0, told.append)
    for leader in (None, ME, ME, YOU, YOU, None):
        me.on_heartbeat(ME, make_reply(leader=leader), clock.monotonic())
    assert [each and each.instance for each in told] == [ME, YOU, None]


async def test_the_time_without_a_leader_is_counted(clock: FakeClock) -> None:
    me = make_elector(clock, is_candidate=False)
    await clock.advance(100)
    assert me.leaderless_seconds == 100
    me.on_heartbeat(ME, make_reply(leader=YOU), clock.monotonic())
    await clock.advance(5)
    me.on_heartbeat(ME, make_reply(), clock.monotonic())
    assert me.leaderless_seconds == 5
