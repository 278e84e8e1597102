"""Every engine does to children what core/dependencies.py says, over all combinations of edges, events and states of parents.

The SQL engines call these rules; Redis repeats them inside its scripts. One call carries all cases of a table. Each child has
another parent, which does not end: so it is never due, and what is counted twice is seen.
"""

import os
from collections.abc import Iterable, Sequence

import pytest

from drumbeat.core.claim import ClaimedJob, WriteStatus
from drumbeat.core.dependencies import EdgeEffect, ParentEvent, edge_effect, judge_edge
from drumbeat.core.job import Job, JobState, NewJob, OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES
from tests.contract.cases.dependencies import EFFECT_CASES, JUDGE_CASES, EffectCase, JudgeCase
from tests.contract.conftest import NEWEST
from tests.contract.graphs import CANCEL, RUN, add_graph, edges, settle
from tests.contract.making import add, claimed_one, ids, new_job, outcome, report, worker
from tests.contract.rules import claim_all, load


@pytest.fixture(params=ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


KINDS = {
    ParentEvent.SUCCEEDED: OutcomeKind.SUCCEEDED,
    ParentEvent.DIED: OutcomeKind.DEAD,
    ParentEvent.CANCELLED: OutcomeKind.CANCELLED,
}
ENDS = {
    "succeeded": (OutcomeKind.SUCCEEDED, JobState.SUCCEEDED),
    "letter": (OutcomeKind.DEAD, JobState.DEAD),
    "discarded": (OutcomeKind.DEAD, JobState.DEAD),
    "cancelled": (OutcomeKind.CANCELLED, JobState.CANCELLED),
    "expired": (OutcomeKind.EXPIRED, JobState.EXPIRED),
}


class Parents:
    """Jobs in a queue of their own, all held by one instance."""

    def __init__(self, store: Store, me: InstanceId) -> None:
        self.store = store
        self.me = me
        self.held: dict[JobId, ClaimedJob] = {}

    async def make(self, lives: Sequence[int]) -> list[JobId]:
        """So many, each in this life."""
        made = await add(self.store, *(new_job(queue="parents") for _ in lives))
        await self.live_on(dict(zip(made, lives, strict=True)))
        return made

    async def live_on(self, wanted: dict[JobId, int]) -> None:
        """Each dies and is replayed so many times more."""
        for count in range(1, max(wanted.values(), default=0) + 1):
            some = [id for id, lives in wanted.items() if lives >= count]
            await self.end(dict.fromkeys(some, OutcomeKind.DEAD))
            await self.replay(some)

    async def end(self, kinds: dict[JobId, OutcomeKind]) -> None:
        self.held |= await claim_all(self.store, self.me, "parents")
        unstarted = {"started_at": None, "finished_at": None}
        told = [
            outcome(self.held.pop(id), kind, **(unstarted if kind is OutcomeKind.EXPIRED else {}))
            for id, kind in kinds.items()
        ]
        assert await report(self.store, self.me, *told) == [WriteStatus.APPLIED] * len(told)
        await settle(self.store)

    async def replay(self, some: Sequence[JobId]) -> None:
        assert all(answer.replayed for answer in await self.store.jobs.replay(some))
        await settle(self.store)

    async def discard(self, some: Sequence[JobId]) -> None:
        assert await self.store.jobs.discard(some) == len(some)
        await settle(self.store)

    async def put(self, places: dict[JobId, str]) -> None:
        """Bring pending jobs into these states."""
        await self.end({id: ENDS[place][0] for id, place in places.items() if place in ENDS})
        await self.discard([id for id, place in places.items() if place == "discarded"])
        back = [self.held.pop(id) for id, place in places.items() if place == "pending" and id in self.held]
        await report(
            self.store,
            self.me,
            *(outcome(job, OutcomeKind.RELEASED, started_at=None, finished_at=None) for job in back),
        )
        found = await load(self.store, list(places))
        assert {id: found[id].state for id in places} == {
            id: ENDS[place][1] if place in ENDS else JobState(place) for id, place in places.items()
        }


class Expected:
    """What a child must be."""

    def __init__(self, open_parents: int) -> None:
        self.open_parents = open_parents
        self.replays = 0
        self.is_cancelled = False

    def follow(self, case: EffectCase, event: ParentEvent, life: int) -> None:
        match edge_effect(case.if_fails, case.edge_life, event, life):
            case EdgeEffect.MET if not self.is_cancelled:
                self.open_parents -= 1
            case EdgeEffect.CANCEL:
                self.is_cancelled = True
            case EdgeEffect.REVIVE if self.is_cancelled:
                self.is_cancelled = False
                self.replays += 1
                judged = judge_edge(case.if_fails, case.edge_life, JobState.PENDING, life)
                self.open_parents = 1 + (judged is EdgeEffect.NOTHING)

    def seen(self) -> tuple[object, ...]:
        if self.is_cancelled:
            return JobState.CANCELLED, None, self.replays
        return JobState.PENDING, self.open_parents, self.replays


def seen(job: Job) -> tuple[object, ...]:
    return job.state, None if job.state is JobState.CANCELLED else job.open_parents, job.replays


async def check(store: Store, expected: Iterable[tuple[object, NewJob, Expected]]) -> None:
    listed = list(expected)
    found = await load(store, ids(child for _, child, _ in listed))
    assert {case: seen(found[child.id]) for case, child, _ in listed} == {case: want.seen() for case, _, want in listed}
    assert await store.dependencies.find_miscounted(10_000) == []


async def test_every_event_does_to_a_child_what_the_rule_says(store: Store) -> None:
    me = await worker(store)
    parents, other = Parents(store, me), await claimed_one(store, me, queue="other")
    made = await parents.make([case.edge_life for case in EFFECT_CASES])
    children = [new_job(queue="children") for _ in EFFECT_CASES]
    links = [
        edge
        for case, parent, child in zip(EFFECT_CASES, made, children, strict=True)
        for edge in [*edges(child, parent, if_fails=case.if_fails), *edges(child, other.id, if_fails=RUN)]
    ]
    await add_graph(store, children, links)
    expected = {case: Expected(open_parents=2) for case in EFFECT_CASES}
    paths = {case: case.path() for case in EFFECT_CASES}
    by_parent = dict(zip(EFFECT_CASES, made, strict=True))
    for turn in range(max(map(len, paths.values()))):
        now = {case: path[turn] for case, path in paths.items() if len(path) > turn}
        await parents.end({by_parent[case]: KINDS[event] for case, (event, _) in now.items() if event in KINDS})
        for event, act in ((ParentEvent.REPLAYED, parents.replay), (ParentEvent.DISCARDED, parents.discard)):
            await act([by_parent[case] for case, (happened, _) in now.items() if happened is event])
        for case, step in now.items():
            expected[case].follow(case, *step)
        await check(store, zip(EFFECT_CASES, children, expected.values(), strict=True))


def judged(case: JudgeCase) -> EdgeEffect:
    state = ENDS[case.place][1] if case.place in ENDS else JobState(case.place)
    return judge_edge(case.if_fails, case.edge_life, state, case.life, is_letter=case.place == "letter")


async def test_every_parent_counts_at_the_add_as_the_rule_says(store: Store) -> None:
    me = await worker(store)
    cases = [case for case in JUDGE_CASES if case.life == case.edge_life]
    parents, other = Parents(store, me), await claimed_one(store, me, queue="other")
    made = await parents.make([case.life for case in cases])
    await parents.put({id: case.place for id, case in zip(made, cases, strict=True)})
    children, links, expected = [new_job(queue="children") for _ in cases], [], []
    for case, parent, child in zip(cases, made, children, strict=True):
        links += [*edges(child, parent, if_fails=case.if_fails), *edges(child, other.id, if_fails=RUN)]
        want = Expected(open_parents=1 + (judged(case) is EdgeEffect.NOTHING))
        want.is_cancelled = judged(case) is EdgeEffect.CANCEL
        expected.append(want)
    await add_graph(store, children, links)
    await check(store, zip(cases, children, expected, strict=True))


async def test_every_other_parent_counts_at_a_revival_as_the_rule_says(store: Store) -> None:
    """The child is cancelled by one parent; when that is replayed, the other is judged by what it is then."""
    me = await worker(store)
    parents, other = Parents(store, me), await claimed_one(store, me, queue="other")
    made = await parents.make([case.edge_life for case in JUDGE_CASES])
    [dying] = await parents.make([0])
    children, links, expected = [new_job(queue="children") for _ in JUDGE_CASES], [], []
    for case, parent, child in zip(JUDGE_CASES, made, children, strict=True):
        links += edges(child, parent, if_fails=case.if_fails)
        links += [*edges(child, dying, if_fails=CANCEL), *edges(child, other.id, if_fails=RUN)]
        want = Expected(open_parents=2 + (judged(case) is EdgeEffect.NOTHING))
        want.is_cancelled = judged(case) is EdgeEffect.CANCEL
        want.replays = 0 if want.is_cancelled else 1
        expected.append(want)
    await add_graph(store, children, links)
    await parents.end({dying: OutcomeKind.DEAD})
    assert {job.state for job in (await load(store, ids(children))).values()} == {JobState.CANCELLED}
    await parents.live_on({id: case.life - case.edge_life for id, case in zip(made, JUDGE_CASES, strict=True)})
    await parents.put({id: case.place for id, case in zip(made, JUDGE_CASES, strict=True)})
    await parents.replay([dying])
    await check(store, zip(JUDGE_CASES, children, expected, strict=True))
