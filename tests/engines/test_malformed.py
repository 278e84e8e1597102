"""Records that are not as we wrote them: each harms itself alone. A vandal writes into the store by hand (tests/vandals.py).

Many damages at once, each beside a good record: what is bad is shown and named, what is good goes on.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from drumbeat import Drumbeat
from drumbeat.admin.audit import new_act
from drumbeat.cli.program import program
from drumbeat.core.audit import AuditFilter
from drumbeat.core.claim import ClaimRequest
from drumbeat.core.health import HealthLevel
from drumbeat.core.job import JobState, OutcomeKind, PendingView
from drumbeat.core.job_query import JobFilter
from drumbeat.core.lock import NewTicket
from drumbeat.core.room import RoomMessage
from drumbeat.core.schedule import Fire
from drumbeat.core.stats import INTERVALS, Resolution, Rollup
from drumbeat.ids import JobId
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.contract.making import add, claim, new_job, outcome, worker
from tests.contract.scheduling import new_schedule, put
from tests.vandals import Damage, Vandal, vandal_of
from tests.waiting import until
from tests.worker.worker_harness import run_worker

FULL = bool(os.environ.get("DRUMBEAT_FULL"))
LISTS = (
    *(
        "status",
        "stats",
        "system",
        "audit",
        "jobs",
        "jobs/counts",
        "dead",
        "dead/groups",
        "queues",
        "tasks",
        "schedules",
    ),
    *("instances", "locks", "jobs?state=dead", "jobs?state=pending", "jobs?state=running", "jobs?state=succeeded"),
    *(
        "jobs?state=ready",
        "jobs?state=waiting",
        "jobs?state=retrying",
        "jobs?error=Undec",
        "jobs?task=greet",
        "jobs?key=k",
    ),
    *("audit?who=ada", "tasks/greet", "tasks/greet/history", "queues/default"),
)
COMMANDS = (
    "jobs list",
    "dead list",
    "dead groups",
    "queues list",
    "tasks list",
    "schedules list",
    "instances list --all",
    "locks list",
    "audit list",
    "doctor",
)
PAGES = (
    "",
    "jobs",
    "dead",
    "queues",
    "tasks",
    "schedules",
    "timeline",
    "instances",
    "locks",
    "audit",
    "system",
    "metrics",
)


@pytest.fixture
async def vandal(store_url: str, store: Store) -> AsyncIterator[Vandal]:
    async with vandal_of(store_url) as vandal:
        yield vandal


@pytest.fixture
async def app(store_url: str, store: Store) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url, name="shop") as app:
        app.ran = []  # type: ignore[attr-defined]

        @app.task(retries=0)
        async def greet(name: str) -> str:
            app.ran.append(name)  # type: ignore[attr-defined]
            return name

        @app.task(retries=0)
        async def refuse(name: str) -> None:
            raise ValueError(name)

        yield app


async def damage_all(vandal: Vandal, kind: str, names: Sequence[str], damages: Sequence[Damage]) -> None:
    for name, damage in zip(names, damages, strict=True):
        await damage.do(name)


async def look_everywhere(app: Drumbeat, ids: Sequence[JobId] = ()) -> list[str]:
    """Every list of the store, the API and the dashboard answers. Gives the names of the doctor's findings."""
    store: Store = await app._internals.client.store()
    for filter in (JobFilter(limit=500), JobFilter(dead_letters=True, limit=500), JobFilter(error="Value")):
        assert (await store.inspect.find_page(filter)).items is not None
        assert await store.inspect.count_jobs(filter) is not None
    for view in PendingView:
        await store.inspect.find_page(JobFilter(view=view))
    for state in JobState:
        await store.inspect.find_page(JobFilter(state=state))
    await store.stats.read(Resolution.TOTAL, 0, 1)
    transport = httpx.ASGITransport(app.dashboard(access="open"), client=("127.0.0.1", 50_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7777") as browser:
        paths = [f"/api/v1/{path}" for path in LISTS] + [f"/{path}" for path in PAGES]
        for id in ids[:: max(1, len(ids) // 12)]:
            paths += [f"/api/v1/jobs/{id}", f"/api/v1/jobs/{id}/attempts", f"/api/v1/jobs/{id}/explain", f"/jobs/{id}"]
        answers = {path: await browser.get(path) for path in paths}
    bad = {
        path: (answer.status_code, answer.text[:300]) for path, answer in answers.items() if answer.status_code != 200
    }
    assert not {path: told for path, told in bad.items() if not (told[0] == 404 and path.rpartition("/")[0])}
    assert not {path: told for path, told in bad.items() if "/jobs/" not in path and "tasks/greet" not in path}
    return [finding.name for finding in await app.system.doctor() if finding.level is not HealthLevel.OK]


async def call_commands(app: Drumbeat) -> None:
    """Every list of the command line answers."""
    for words in COMMANDS:
        done = await asyncio.to_thread(
            CliRunner().invoke, program, [*words.split(), "--url", app.settings.url], env={"DRUMBEAT_DEBUG": "1"}
        )
        # 1: the doctor has found something bad.
        assert done.exit_code in ((0, 1) if words == "doctor" else (0,)), (words, done.output, done.exception)


async def enqueued(app: Drumbeat, count: int, task: str = "greet", **options: Any) -> list[JobId]:
    signature = app._internals.registry[task].signature.hash
    store = await app._internals.client.store()
    jobs = [new_job(task, args=f'{{"name":"{number}"}}', signature=signature, **options) for number in range(count)]
    return await add(store, *jobs)


async def states(app: Drumbeat, ids: Sequence[JobId]) -> dict[JobId, JobState]:
    store = await app._internals.client.store()
    return {id: job.state for id, job in (await store.inspect.get_jobs(ids)).items()}


async def all_are(app: Drumbeat, ids: Sequence[JobId], state: JobState) -> bool:
    found = await states(app, ids)
    return all(found.get(id) is state for id in ids)


async def test_a_damaged_pending_job_dies_alone_and_its_neighbours_run(app: Drumbeat, vandal: Vandal) -> None:
    damages = vandal.damages("pending")
    bad = [(await enqueued(app, 1, key=f"bad {number}"))[0] for number in range(len(damages))]
    good = await enqueued(app, len(damages))
    await damage_all(vandal, "pending", bad, damages)
    names = await look_everywhere(app, bad)
    assert any(name.startswith("job ") for name in names), names
    await call_commands(app)
    named = {id: damage for id, damage in zip(bad, damages, strict=True) if damage.field is not None}
    async with run_worker(app):
        await until(lambda: all_are(app, good, JobState.SUCCEEDED), what="all neighbours ran")
        await until(lambda: all_are(app, list(named), JobState.DEAD), what="all damaged ones are dead letters")
        later = await enqueued(app, 5)
        await until(lambda: all_are(app, later, JobState.SUCCEEDED), what="what came later ran")
        await look_everywhere(app, bad)
    store = await app._internals.client.store()
    letters = {job.id: job for job in await find_jobs(store, JobFilter(dead_letters=True, limit=500))}
    for id, damage in named.items():
        error = letters[id].error
        assert error is not None and error.type == "Undecodable", damage.name
        assert f"stored {damage.field}".strip() in error.message, (damage.name, error.message)
    assert len(app.ran) >= len(good)  # type: ignore[attr-defined]


async def test_damaged_dead_letters_and_history_are_shown_named_replayed_and_discarded(
    app: Drumbeat, vandal: Vandal
) -> None:
    letters, history = vandal.damages("letter"), vandal.damages("history")
    refused = await enqueued(app, 2 * len(letters), task="refuse")
    ended = await enqueued(app, 2 * len(history))
    async with run_worker(app):
        await until(lambda: all_are(app, refused, JobState.DEAD))
        await until(lambda: all_are(app, ended, JobState.SUCCEEDED))
    bad, good = refused[: len(letters)], refused[len(letters) :]
    await damage_all(vandal, "letter", bad, letters)
    await damage_all(vandal, "history", ended[: len(history)], history)
    names = await look_everywhere(app, [*bad, *ended])
    assert any(name.startswith("dead letter") for name in names), names
    store = await app._internals.client.store()
    shown = {job.id for job in await find_jobs(store, JobFilter(dead_letters=True, limit=500))}
    assert shown == set(refused)
    assert len(await find_jobs(store, JobFilter(limit=1_000))) == len(refused) + len(ended)
    results = dict(zip([*refused, *ended], await store.jobs.get_results([*refused, *ended]), strict=True))
    intact = dict.fromkeys(good, JobState.DEAD) | dict.fromkeys(ended[len(history) :], JobState.SUCCEEDED)
    assert {id: each.state for id, each in results.items() if each is not None and id in intact} == intact
    replayed = await store.jobs.replay([*bad[::2], *good[::2]])
    assert all(answer.replayed for answer in replayed)
    async with run_worker(app):
        await until(lambda: all_are(app, [*bad[::2], *good[::2]], JobState.DEAD), what="they died again")
    assert await store.jobs.discard(refused) == len(refused)
    await look_everywhere(app, [*bad, *ended])
    await store.jobs.prune(2**62, 10_000)


async def test_jobs_damaged_while_they_run_can_be_ended_in_every_way(
    app: Drumbeat, vandal: Vandal, store: Store
) -> None:
    damages = vandal.damages("running")
    kinds = [OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.SNOOZED, OutcomeKind.RELEASED]
    me, other, third = [await worker(store) for _ in range(3)]
    for number, kind in enumerate(kinds):
        ids = await add(store, *[new_job(key=f"{number} {each}") for each in range(len(damages))])
        good = await add(store, *[new_job() for _ in range(5)])
        held = await claim(store, me, limit=1_000)
        assert {job.id for job in held} >= {*ids, *good}
        await damage_all(vandal, "running", ids, damages)
        if kind is OutcomeKind.SUCCEEDED:
            await look_everywhere(app, ids)
        await store.instances.heartbeat(me, len(held))
        exchanged = await store.jobs.report_and_claim(me, [outcome(job, kind) for job in held], None)
        assert len(exchanged.statuses) == len(held)
    await add(store, *[new_job(key=f"cancel {each}", crash_limit=1 + each % 2) for each in range(2 * len(damages))])
    buried = await claim(store, other, limit=2_000)
    mine = [job.id for job in buried][-2 * len(damages) :]
    await damage_all(vandal, "running", mine[: len(damages)], damages)
    await store.jobs.cancel(mine[::3])
    assert (await store.instances.declare_dead(other, beat=None, started=None, reason="test")).declared
    await claim(store, third, limit=2_000)
    await store.instances.deregister(third, "test")
    assert await store.jobs.list_running(me) is not None
    await look_everywhere(app, mine)


async def _fires(store: Store, name: str) -> list[Fire]:
    return (await store.schedules.list_fires([name]))[name]


async def test_damaged_schedules_do_not_stop_the_others(app: Drumbeat, vandal: Vandal, store: Store) -> None:
    damages = vandal.damages("schedule")
    names = [f"bad-{number:03}" for number in range(len(damages))]
    for name in (*names, "aaa-good", "zzz-good"):
        await put(store, new_schedule(name, task="greet", args='{"name":"x"}', rule="1000000"))
    await damage_all(vandal, "schedule", names, damages)
    async with run_worker(app):
        for name in ("aaa-good", "zzz-good"):
            await until(partial(_fires, store, name), what=f"{name} fires")
    found = await look_everywhere(app)
    assert any(name.startswith("schedule bad-") for name in found), found
    await call_commands(app)
    listed = {schedule.name for schedule in await store.schedules.list_page(all=True)}
    assert {"aaa-good", "zzz-good"} <= listed
    await store.schedules.advance_stalled()
    await store.schedules.retire_undeclared(2**62)
    for name in names:
        await store.schedules.get(name)
    await store.schedules.list_fires(names)
    await store.schedules.prune_fires(2**62, 1_000)
    for name in names:
        await app.schedules.delete(name, reason="test")
    listed = {schedule.name for schedule in await store.schedules.list_page()}
    assert not listed & set(names)


async def test_damaged_instances_stop_neither_beats_nor_lists(app: Drumbeat, vandal: Vandal, store: Store) -> None:
    damages = vandal.damages("instance")
    bad = [await worker(store) for _ in damages]
    me = await worker(store)
    await add(store, *[new_job() for _ in range(3)])
    await damage_all(vandal, "instance", bad, damages)
    pulse = await store.instances.heartbeat(me, 0, lead=10_000_000)
    assert pulse.alive and pulse.leader is not None and pulse.leader.instance == me
    await look_everywhere(app)
    listed = {instance.id for instance in await store.inspect.list_instances(all=True)}
    assert me in listed and listed >= {id for id in bad if id in listed}
    for id in bad:
        await store.instances.heartbeat(id, 0)
        await store.jobs.report_and_claim(id, [], ClaimRequest(queues=(("default", 5),), limit=5))
        await store.instances.declare_dead(id, beat=None, started=None, reason="test")
    await store.instances.prune(2**62)


async def test_damaged_locks_can_be_entered_looked_at_and_left(app: Drumbeat, vandal: Vandal, store: Store) -> None:
    for kind in ("lock", "ticket"):
        for number, damage in enumerate(vandal.damages(kind)):
            name = f"{kind}-{number}"
            first, second, third = (
                NewTicket(id=f"{name}-{each}", lock=name, lease=60_000_000, per=None, limit=1) for each in "abc"
            )
            await store.locks.acquire(first)
            await store.locks.acquire(second)
            await damage.do(name)
            await store.locks.list_page(all=True)
            await store.locks.get(name)
            await store.locks.ticket_status([first.id, second.id], renew=True)
            await store.locks.acquire(third)
            await store.locks.release([first.id, second.id])
            await store.locks.force_release(name, None, by="ada", reason="test")
            await store.locks.ticket_status([third.id], renew=True)
            await store.locks.release([third.id])
    await look_everywhere(app)


async def test_damaged_acts_counts_and_messages_are_left_out(app: Drumbeat, vandal: Vandal, store: Store) -> None:
    me = await worker(store)
    acts = vandal.damages("act")
    done = [new_act(who="ada", verb="queues.pause", target="mail", via="cli") for _ in acts]
    for act in done:
        await store.audit.begin(act)
    await store.audit.begin(new_act(who="bob", verb="queues.pause", target="mail", via="cli"))
    await damage_all(vandal, "act", [act.id for act in done], acts)
    assert "bob" in {act.who for act in await store.audit.list_page(AuditFilter(limit=500))}
    for damage in vandal.damages("rollup"):
        counted = [
            Rollup(resolution=Resolution.MINUTE, at=0, queue="q", task=task, started=3) for task in ("bad", "good")
        ]
        await store.stats.put(me, counted)
        await damage.do("bad")
        found = await store.stats.read(Resolution.MINUTE, 0, 10)
        assert [each.started for each in found if each.task == "good"] == [3], damage.name
    for damage in vandal.damages("message"):
        messages = [RoomMessage(id=f"{room}-1", room=room, to=me, args="{}", signature="s") for room in ("bad", "good")]
        await store.rooms.send(messages)
        await damage.do("bad")
        assert "good" in [message.room for message in await store.rooms.take(me, 100)], damage.name
        assert await store.rooms.take(me, 100) == []
    await look_everywhere(app)
    await store.audit.prune(2**62, 1_000)
    await store.stats.prune(dict.fromkeys(INTERVALS, 2**62), idle_since=2**62, limit=1_000)


@pytest.mark.parametrize("seed", range(40 if FULL else 2))
async def test_what_is_changed_at_random_harms_nobody_else(app: Drumbeat, vandal: Vandal, seed: int) -> None:
    chance = random.Random(seed)
    bad, good = await enqueued(app, 60), await enqueued(app, 20)
    for id in bad:
        await vandal.flip(id, chance)
    async with run_worker(app):
        await until(lambda: all_are(app, good, JobState.SUCCEEDED), what=f"neighbours ran (seed {seed})")
        later = await enqueued(app, 5)
        await until(lambda: all_are(app, later, JobState.SUCCEEDED), what=f"what came later ran (seed {seed})")
        await look_everywhere(app, bad)
