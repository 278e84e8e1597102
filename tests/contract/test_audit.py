"""What people did is on record before it is done; a request that is sent again is seen to be the same one."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.core.audit import MAX_ANSWER_BYTES, AuditEntry, AuditFilter, NewAuditEntry
from drumbeat.durations import to_us
from drumbeat.ids import new_job_id
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import HOUR


def new_act(**options: Any) -> NewAuditEntry:
    facts: dict[str, Any] = {"id": new_job_id(), "who": "ada", "role": "operator", "via": "api"}
    facts |= {"verb": "queues.pause", "target": "default", "reason": "Wartung, „jetzt“"}
    return NewAuditEntry(**(facts | options))


async def begun(store: Store, *acts: NewAuditEntry) -> list[str]:
    """Their ids, newest first."""
    for act in acts:
        assert await store.audit.begin(act) is None
    return [act.id for act in acts][::-1]


def ids(acts: list[AuditEntry]) -> list[str]:
    return [act.id for act in acts]


async def test_an_act_is_on_record_before_it_is_done(store: Store, open_again: OpenAgain) -> None:
    act = new_act(request_key="k1", request_hash="h1")
    assert await store.audit.begin(act) is None
    [found] = await (await open_again()).audit.list_page()
    given = msgspec.structs.asdict(act)
    assert {name: getattr(found, name) for name in given} == given
    assert abs(to_us(found.at) - await store.inspect.now()) < HOUR
    assert (found.done_at, found.touched, found.outcome, found.answer) == (None, None, None, None)


async def test_its_end_says_how_many_it_touched_and_what_was_answered(store: Store) -> None:
    act = new_act()
    await store.audit.begin(act)
    await store.audit.end(act.id, touched=3, outcome="done", answer='{"n":9007199254740993,"ü":"\\u0000"}')
    found = await store.audit.get(act.id)
    assert found is not None and found.done_at is not None
    assert found.at <= found.done_at <= found.at + timedelta(hours=1)
    assert (found.touched, found.outcome, found.answer) == (3, "done", '{"n":9007199254740993,"ü":"\\u0000"}')


async def test_the_first_end_counts(store: Store) -> None:
    act = new_act()
    await store.audit.begin(act)
    await store.audit.end(act.id, touched=0, outcome="failed: ValueError: boom", answer=None)
    await store.audit.end(act.id, touched=7, outcome="done", answer="{}")
    found = await store.audit.get(act.id)
    assert found is not None
    assert (found.touched, found.outcome, found.answer) == (0, "failed: ValueError: boom", None)


async def test_the_end_of_what_never_began_is_passed_over(store: Store) -> None:
    await store.audit.end(new_job_id(), touched=1, outcome="done", answer=None)
    assert await store.audit.list_page() == []
    assert await store.audit.get(new_job_id()) is None


async def test_an_answer_that_is_too_long_is_not_kept(store: Store) -> None:
    longest = '"' + "x" * (MAX_ANSWER_BYTES - 2) + '"'
    for answer, kept in ((longest, longest), (longest[:-2] + 'ü"', None)):
        act = new_act()
        await begun(store, act)
        await store.audit.end(act.id, touched=1, outcome="done", answer=answer)
        found = await store.audit.get(act.id)
        assert found is not None and (found.outcome, found.answer) == ("done", kept)


async def test_a_request_that_is_sent_again_gives_the_earlier_act_with_its_answer(store: Store) -> None:
    first, second = new_act(request_key="k", request_hash="h1"), new_act(request_key="k", request_hash="h2")
    await begun(store, first)
    under_way = await store.audit.begin(second)
    assert under_way is not None and (under_way.id, under_way.done_at) == (first.id, None)
    await store.audit.end(first.id, touched=1, outcome="done", answer='{"paused":true}')
    done = await store.audit.begin(second)
    assert done == await store.audit.get(first.id)
    assert done is not None and (done.answer, done.request_hash) == ('{"paused":true}', "h1")
    assert ids(await store.audit.list_page()) == [first.id]


async def test_the_same_key_of_somebody_else_is_another(store: Store) -> None:
    mine, yours = new_act(request_key="k"), new_act(request_key="k", who="bob")
    assert ids(await store.audit.list_page()) == []
    expected = await begun(store, mine, yours)
    assert ids(await store.audit.list_page()) == expected


async def test_acts_without_a_key_never_collide(store: Store) -> None:
    expected = await begun(store, new_act(), new_act())
    assert ids(await store.audit.list_page()) == expected


async def test_beginning_the_same_act_again_is_harmless(store: Store) -> None:
    for act in (new_act(), new_act(request_key="k")):
        assert [await store.audit.begin(act) for _ in range(2)] == [None, None]
    assert len(await store.audit.list_page()) == 2


async def test_a_key_stands_for_one_act_only_for_a_time(store: Store) -> None:
    first, second, third = (new_act(request_key="k") for _ in range(3))
    await begun(store, first)
    assert await store.audit.begin(second, within_us=0) is None
    again = await store.audit.begin(third)
    assert again is not None and again.id == second.id
    assert ids(await store.audit.list_page()) == [second.id, first.id]


async def test_of_twenty_with_the_same_key_one_begins(store: Store, open_again: OpenAgain) -> None:
    stores = [store, *[await open_again() for _ in range(3)]]
    acts = [new_act(request_key="k") for _ in range(20)]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(stores[n % 4].audit.begin(act)) for n, act in enumerate(acts)]
    winners = [act.id for act, call in zip(acts, calls, strict=True) if call.result() is None]
    assert len(winners) == 1
    assert {found.id for call in calls if (found := call.result()) is not None} == set(winners)
    assert ids(await store.audit.list_page()) == winners


async def test_pages_go_back_in_time_without_a_gap(store: Store) -> None:
    expected = await begun(store, *(new_act(target=f"q{number}") for number in range(7)))
    found: list[str] = []
    while page := await store.audit.list_page(AuditFilter(before=found[-1] if found else None, limit=3)):
        assert len(page) <= 3
        found += ids(page)
    assert found == expected
    assert await store.audit.list_page(AuditFilter(limit=0)) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"who": "ada"},
        {"verb": "queues."},
        {"verb": "queues.pause"},
        {"target": "a%b_c"},
        {"who": "bob", "verb": "jobs", "target": "a%b_c"},
        {"who": "bob", "target": "default"},
        {"who": "nobody"},
        {"verb": "%"},
    ],
    ids=str,
)
async def test_a_page_is_of_those_that_are_wanted(store: Store, wanted: dict[str, str]) -> None:
    acts = [
        new_act(who=who, verb=verb, target=target)
        for who in ("ada", "bob")
        for verb in ("queues.pause", "queues.resume", "jobs.cancel")
        for target in ("default", "a%b_c")
    ]
    await begun(store, *acts)

    def matches(act: NewAuditEntry) -> bool:
        whole = all(getattr(act, name) == wanted[name] for name in ("who", "target") if name in wanted)
        return whole and act.verb.startswith(wanted.get("verb", ""))

    expected = [act.id for act in acts if matches(act)][::-1]
    assert ids(await store.audit.list_page(AuditFilter(**wanted))) == expected  # type: ignore[arg-type]
    first = ids(await store.audit.list_page(AuditFilter(**wanted, limit=1)))  # type: ignore[arg-type]
    rest = await store.audit.list_page(AuditFilter(**wanted, before=first[0])) if first else []  # type: ignore[arg-type]
    assert first + ids(rest) == expected


async def test_a_search_that_finds_little_looks_at_all(store: Store) -> None:
    rare = new_act(who="bob")
    await begun(store, rare, *(new_act() for _ in range(600)))
    assert ids(await store.audit.list_page(AuditFilter(who="bob"))) == [rare.id]
    assert ids(await store.audit.list_page(AuditFilter(verb="queues", target="default", limit=601)))[-1] == rare.id


async def test_old_acts_are_pruned_oldest_first_and_their_keys_are_free(store: Store) -> None:
    acts = [new_act(request_key=f"k{number}") for number in range(3)]
    await begun(store, *acts)
    now = await store.inspect.now()
    assert await store.audit.prune(now - HOUR, 10) == 0
    assert await store.audit.prune(now + HOUR, 2) == 2
    assert ids(await store.audit.list_page()) == [acts[2].id]
    again = new_act(request_key="k0")
    assert await store.audit.begin(again) is None
    held = await store.audit.begin(new_act(request_key="k2"))
    assert held is not None and held.id == acts[2].id


async def test_progress_is_on_record_and_its_process_learns_who_stops_it(store: Store, open_again: OpenAgain) -> None:
    act, other = new_act(), await open_again()
    await store.audit.begin(act)
    assert not await other.audit.request_stop(act.id, "grace"), "it reports no progress"
    assert await other.audit.list_page(AuditFilter(unended=True)) == []
    assert await store.audit.report_progress(act.id, touched=3, matched=10) is None
    [found] = await other.audit.list_page(AuditFilter(unended=True))
    assert (found.id, found.touched, found.matched, found.done_at, found.stopped_by) == (act.id, 3, 10, None, None)
    assert found.reported_at is not None and found.reported_at >= found.at
    assert await other.audit.request_stop(act.id, "grace")
    assert await other.audit.request_stop(act.id, "bob"), "the first request counts"
    assert await store.audit.report_progress(act.id, touched=4, matched=None) == "grace"
    await store.audit.end(act.id, touched=5, outcome="stopped by grace", answer=None)
    assert not await other.audit.request_stop(act.id, "bob")
    assert await store.audit.report_progress(act.id, touched=9, matched=9) is None
    ended = await other.audit.get(act.id)
    assert ended is not None and (ended.touched, ended.matched, ended.stopped_by) == (5, None, "grace")
    assert await other.audit.list_page(AuditFilter(unended=True)) == []
    assert not await store.audit.request_stop(new_job_id(), "bob")
    assert await store.audit.report_progress(new_job_id(), touched=1, matched=1) is None


async def test_unended_entries_are_found_page_by_page_and_pruned(store: Store) -> None:
    acts = [new_act(who=who) for who in ("ada", "bob", "ada")]
    for act in acts:
        await store.audit.begin(act)
        await store.audit.report_progress(act.id, touched=0, matched=1)
    await begun(store, new_act())
    newest = await store.audit.list_page(AuditFilter(unended=True, limit=2))
    assert ids(newest) == [acts[2].id, acts[1].id]
    assert ids(await store.audit.list_page(AuditFilter(unended=True, before=newest[-1].id))) == [acts[0].id]
    assert ids(await store.audit.list_page(AuditFilter(unended=True, who="bob"))) == [acts[1].id]
    await store.audit.prune(await store.inspect.now() + HOUR, 100)
    assert await store.audit.list_page(AuditFilter(unended=True)) == []
