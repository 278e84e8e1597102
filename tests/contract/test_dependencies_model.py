"""Random graphs with random ends against a small pure model, which counts from first principles: what the ends of a parent make
of an edge, and what the edges make of a child. After each call the store and the model must say the same of every job.

Time is left out: jobs are due at once. Nothing of core/dependencies.py or of an engine is used by the model but the names.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drumbeat.core.claim import ClaimRef, WriteStatus
from drumbeat.core.dependencies import Binding, IfParentFails, NewEdge
from drumbeat.core.job import JobState, NewJob, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import JobExpired, JobNotFound
from drumbeat.ids import InstanceId, JobId, new_instance_id, new_job_id
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES, open_fresh
from tests.contract.conftest import NEWEST
from tests.contract.graphs import CANCEL, RUN, add_graph, settle
from tests.contract.making import new_instance, new_job, outcome, wanting

PENDING, RUNNING, SUCCEEDED, DEAD = JobState.PENDING, JobState.RUNNING, JobState.SUCCEEDED, JobState.DEAD
CANCELLED, EXPIRED = JobState.CANCELLED, JobState.EXPIRED
KINDS = st.sampled_from(
    [
        *[OutcomeKind.SUCCEEDED] * 3,
        *[OutcomeKind.DEAD] * 3,
        OutcomeKind.CANCELLED,
        OutcomeKind.EXPIRED,
        OutcomeKind.RETRY,
        OutcomeKind.RELEASED,
        OutcomeKind.CRASHED,
    ]
)
LONG_AGO = 1_000_000


class Link:
    """One parent of a child."""

    def __init__(self, parent: "Node", if_fails: IfParentFails) -> None:
        self.parent = parent
        self.if_fails = if_fails
        self.life = parent.life

    @property
    def is_met(self) -> bool:
        if self.parent.is_pruned:
            return True
        if self.if_fails is RUN:
            return any(life >= self.life for life in self.parent.ends)
        return self.parent.state is SUCCEEDED

    @property
    def fails(self) -> bool:
        if self.parent.is_pruned or self.if_fails is RUN:
            return False
        if self.parent.is_letter:
            return self.if_fails is CANCEL
        return self.parent.state in (DEAD, CANCELLED, EXPIRED)


class Node:
    """What the model knows of a job."""

    def __init__(self, id: JobId, links: list[Link], *, expires: bool, crash_limit: int) -> None:
        self.id = id
        self.links = links
        self.expires = expires
        self.crash_limit = crash_limit
        self.state = PENDING
        self.life = 0
        self.ends: list[int] = []
        """The lives that have ended."""
        self.holder: tuple[InstanceId, int] | None = None
        self.failures = 0
        self.crashes = 0
        self.cancel_requested = False
        self.is_letter = False
        self.is_pruned = False
        self.by_parents = False
        """It is cancelled because of its parents, not by a person."""
        self.is_kept = False
        """It was, and a person has cancelled it since: it stays so."""

    @property
    def open(self) -> int:
        return sum(not link.is_met for link in self.links)

    @property
    def is_ready(self) -> bool:
        return self.state is PENDING and not self.open

    def end(self, state: JobState, *, letter: bool = False) -> None:
        assert self.state in (PENDING, RUNNING)
        self.state, self.is_letter, self.holder = state, letter, None
        self.ends.append(self.life)

    def live_again(self) -> None:
        self.state, self.is_letter, self.by_parents, self.cancel_requested = PENDING, False, False, False
        self.life, self.failures, self.crashes = self.life + 1, 0, 0

    def give_back(self) -> None:
        if self.cancel_requested:
            self.end(CANCELLED)
        else:
            self.state, self.holder = PENDING, None


class GraphsLife(RuleBasedStateMachine):
    engine = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.nodes: dict[JobId, Node] = {}
        self.instances: dict[InstanceId, bool] = {}
        self.calls: list[tuple[list[NewJob], list[NewEdge]]] = []
        self.past: list[tuple[InstanceId, ClaimRef]] = []
        self.store: Store = self.run(open_fresh(self.engine, Path(self.folder.name)))

    def run(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        """Whatever has happened: when all that is due has succeeded, nothing waits but for dead letters."""
        self.register()
        me = [*self.instances][-1]
        while jobs := self.run(self.store.jobs.report_and_claim(me, [], wanting(limit=100))).jobs:
            for job in jobs:
                assert self.nodes[job.id].is_ready
                self.hold(job.id, me, job.token)
            told = [outcome(job, OutcomeKind.SUCCEEDED) for job in jobs]
            assert set(self.run(self.store.jobs.report_and_claim(me, told, None)).statuses) == {WriteStatus.APPLIED}
            for job in jobs:
                self.nodes[job.id].end(SUCCEEDED)
            self.follow()
        self.the_store_and_the_model_say_the_same()
        for node in self.nodes.values():
            if node.state is PENDING:
                assert any(link.parent.is_letter or link.parent.state in (PENDING, RUNNING) for link in node.links)
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_pruned]

    def held(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.state is RUNNING]

    def letters(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_letter]

    def hold(self, id: JobId, instance: InstanceId, token: int) -> None:
        node = self.nodes[id]
        node.state, node.holder = RUNNING, (instance, token)
        self.past.append((instance, ClaimRef(id, token)))

    def follow(self) -> None:
        """What becomes of children, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for node in self.alive():
                fails = any(link.fails for link in node.links)
                if node.state is PENDING and fails:
                    node.end(CANCELLED)
                    node.by_parents = changed = True
                elif node.by_parents and not node.is_kept and not fails:
                    node.live_again()
                    changed = True

    # The calls.

    @initialize()
    def first_instance(self) -> None:
        self.register()

    @rule()
    def register(self) -> None:
        instance = new_instance(new_instance_id())
        self.run(self.store.instances.register(instance))
        self.instances[instance.id] = True

    @rule(data=st.data(), size=st.integers(1, 5))
    def add(self, data: st.DataObject, size: int) -> None:
        known, made = list(self.nodes.values()), list[Node]()
        jobs, edges = list[NewJob](), list[NewEdge]()
        for _ in range(size):
            choice = [*known[-6:], *made]
            parents = data.draw(st.lists(st.sampled_from(choice), max_size=3, unique=True)) if choice else []
            policies = data.draw(st.lists(st.sampled_from(IfParentFails), min_size=3, max_size=3))
            expires, crash_limit = data.draw(st.booleans()), data.draw(st.integers(1, 2))
            # The ids of clients with other clocks: a child's may be smaller than its parent's.
            id = new_job_id(data.draw(st.integers(1, 9)) * 1_000_000) if data.draw(st.booleans()) else new_job_id()
            job = new_job(id=id, expires_at=LONG_AGO if expires else None, crash_limit=crash_limit)
            links = [Link(parent, policy) for parent, policy in zip(parents, policies, strict=False)]
            made.append(Node(job.id, links, expires=expires, crash_limit=crash_limit))
            jobs.append(job)
            edges += [
                NewEdge(
                    link.parent.id, job.id, link.if_fails, Binding.OUTCOME if link.if_fails is RUN else Binding.NONE
                )
                for link in links
            ]
        if any(link.parent.is_pruned for node in made for link in node.links):
            try:
                self.run(add_graph(self.store, jobs, edges))
            except (JobNotFound, JobExpired):
                return
            raise AssertionError("a parent was pruned")
        answer = self.run(add_graph(self.store, jobs, edges))
        assert [each.created for each in answer.results] == [True] * size
        self.nodes |= {node.id: node for node in made}
        self.calls.append((jobs, edges))
        self.follow()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        jobs, edges = data.draw(st.sampled_from(self.calls))
        if any(self.nodes[job.id].is_pruned for job in jobs):
            return
        answer = self.run(add_graph(self.store, jobs, edges))
        assert [each.created for each in answer.results] == [False] * len(jobs)

    @rule(data=st.data(), limit=st.integers(1, 6))
    def claim(self, data: st.DataObject, limit: int) -> None:
        instance = data.draw(st.sampled_from(list(self.instances)))
        jobs = self.run(self.store.jobs.report_and_claim(instance, [], wanting(limit=limit))).jobs
        ready = [node.id for node in self.nodes.values() if node.is_ready]
        assert {job.id for job in jobs} <= set(ready), "it waits for a parent, or has run"
        assert len(jobs) == (min(limit, len(ready)) if self.instances[instance] else 0)
        for job in jobs:
            assert job.replays == self.nodes[job.id].life
            self.hold(job.id, instance, job.token)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), claims=st.booleans())
    def report(self, data: st.DataObject, claims: bool) -> None:
        """Several jobs of one instance end, and perhaps what becomes due is claimed by the same call."""
        first = data.draw(st.sampled_from(self.held()))
        assert first.holder is not None
        instance = first.holder[0]
        mine = [node for node in self.held() if node.holder is not None and node.holder[0] == instance]
        some = data.draw(st.lists(st.sampled_from(mine), min_size=1, max_size=3, unique=True))
        kinds = [data.draw(KINDS) for _ in some]
        told = [
            outcome(ClaimRef(node.id, (node.holder or ("", 0))[1]), kind)
            for node, kind in zip(some, kinds, strict=True)
        ]
        answer = self.run(self.store.jobs.report_and_claim(instance, told, wanting(limit=9) if claims else None))
        assert answer.statuses == [WriteStatus.APPLIED] * len(told)
        for node, kind in zip(some, kinds, strict=True):
            self.settle(node, kind)
        self.follow()
        ready = {node.id for node in self.nodes.values() if node.is_ready}
        assert {job.id for job in answer.jobs} <= ready
        for job in answer.jobs:
            self.hold(job.id, instance, job.token)

    def settle(self, node: Node, kind: OutcomeKind) -> None:
        node.failures += kind in (OutcomeKind.RETRY, OutcomeKind.DEAD)
        node.crashes += kind is OutcomeKind.CRASHED
        match kind:
            case OutcomeKind.SUCCEEDED:
                node.end(SUCCEEDED)
            case OutcomeKind.CANCELLED | OutcomeKind.EXPIRED:
                node.end(JobState(kind.value))
            case OutcomeKind.DEAD:
                node.end(DEAD, letter=True)
            case OutcomeKind.CRASHED if node.crashes >= node.crash_limit:
                node.end(DEAD, letter=True)
            case _:
                node.give_back()

    @precondition(lambda self: any(node.is_ready for node in self.nodes.values()) and any(self.instances.values()))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """One that is ready dies. By single calls that is rare, and what a replay does even more."""
        instance = data.draw(st.sampled_from([id for id, is_alive in self.instances.items() if is_alive]))
        ready = [node for node in self.nodes.values() if node.is_ready]
        doomed = data.draw(st.sampled_from(ready))
        jobs = self.run(self.store.jobs.report_and_claim(instance, [], wanting(limit=len(ready)))).jobs
        kinds = {job.id: OutcomeKind.DEAD if job.id == doomed.id else OutcomeKind.RELEASED for job in jobs}
        assert kinds.keys() == {node.id for node in ready}
        told = [outcome(job, kinds[job.id]) for job in jobs]
        answer = self.run(self.store.jobs.report_and_claim(instance, told, None))
        assert set(answer.statuses) == {WriteStatus.APPLIED}
        for job in jobs:
            self.settle(self.nodes[job.id], kinds[job.id])
        self.follow()

    @precondition(lambda self: self.past)
    @rule(data=st.data(), kind=KINDS)
    def report_late(self, data: st.DataObject, kind: OutcomeKind) -> None:
        """What a zombie tells, or somebody whose answer was lost: nothing changes."""
        instance, ref = data.draw(st.sampled_from(self.past))
        if self.nodes[ref.id].holder != (instance, ref.token):
            [status] = self.run(self.store.jobs.report_and_claim(instance, [outcome(ref, kind)], None)).statuses
            assert status is not WriteStatus.APPLIED

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(list(self.nodes.values())))
        self.run(self.store.jobs.cancel([node.id]))
        if node.state is PENDING:
            node.end(CANCELLED)
        elif node.state is RUNNING:
            node.cancel_requested = True
        node.is_kept = node.state is CANCELLED
        self.follow()

    @precondition(lambda self: self.letters())
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.letters()), min_size=1, max_size=3, unique=True))
        answers = self.run(self.store.jobs.replay([node.id for node in some]))
        assert [answer.replayed for answer in answers] == [True] * len(some)
        for node in some:
            node.live_again()
        self.follow()

    @precondition(lambda self: self.letters())
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.letters()))
        assert self.run(self.store.jobs.discard([node.id])) == 1
        node.is_letter = False
        self.follow()

    @rule()
    def expire(self) -> None:
        expected = [
            node
            for node in self.nodes.values()
            if node.expires and node.state is PENDING and not node.life + node.failures + node.crashes
        ]
        # Those below it are cancelled in the same call, and then cannot expire.
        found = self.run(self.store.jobs.expire(1_000))
        assert found == len(expected)
        for node in expected:
            node.end(EXPIRED)
        self.follow()

    @rule(data=st.data())
    def declare_dead(self, data: st.DataObject) -> None:
        instance = data.draw(st.sampled_from(list(self.instances)))
        held = [node for node in self.held() if node.holder is not None and node.holder[0] == instance]
        self.run(self.store.instances.declare_dead(instance, beat=None, started=None, reason="killed"))
        self.instances[instance] = False
        for node in held:
            if node.cancel_requested:
                node.end(CANCELLED)
                continue
            own = node.crashes and len(held) == 1
            node.crashes = node.crashes + 1 if own else max(node.crashes, 1)
            if node.crashes >= node.crash_limit:
                node.end(DEAD, letter=True)
            else:
                node.give_back()
        self.follow()

    @rule()
    def prune(self) -> None:
        ended = [
            node for node in self.alive() if node.state in (SUCCEEDED, DEAD, CANCELLED, EXPIRED) and not node.is_letter
        ]
        before = self.run(self.store.inspect.now()) + 1
        assert self.run(self.store.jobs.prune(before, 1_000)) == len(ended)
        for node in ended:
            node.is_pruned = True

    # What must always be so.

    @invariant()
    def the_store_and_the_model_say_the_same(self) -> None:
        self.run(settle(self.store))
        found = self.run(self.store.inspect.get_jobs(list(self.nodes)))
        letters = {job.id for job in self.run(find_jobs(self.store, JobFilter(dead_letters=True, limit=1_000)))}
        assert letters == {node.id for node in self.letters()}
        assert found.keys() == {node.id for node in self.alive()}
        for node in self.alive():
            job = found[node.id]
            assert (job.state, job.replays) == (node.state, node.life), node.id
            if node.state is PENDING:
                assert job.open_parents == (node.open if node.links else None), node.id
                assert job.blocked_on == ("parents" if node.open else None), node.id
            if node.state is CANCELLED:
                assert node.by_parents == (job.error is not None and job.error.type == "ParentFailed"), node.id
        assert self.run(self.store.dependencies.find_miscounted()) == []


def life_on(engine: str) -> Any:
    """The machine's test on one engine."""
    machine = type(f"GraphsLifeOn{engine.title()}", (GraphsLife,), {"engine": engine})
    machine.TestCase.settings = settings(  # type: ignore[attr-defined]
        max_examples=500 if os.environ.get("DRUMBEAT_FULL") else 12 if engine in NEWEST else 4,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return machine.TestCase  # type: ignore[attr-defined]


for name in ENGINES:
    globals()[f"Test{name.title()}"] = life_on(name)
