"""Graphs of jobs in a simulated cluster: how a seed draws them, and the client that adds them, cancels in them and replays.

A node is a job of the task "node", which succeeds in the end, or "mortal", which dies in its first lives. The edges go into the
history as they are asked for.
"""

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat.core.dependencies import IfParentFails, NewEdge, NewGraph
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import DrumbeatError, JobExpired, JobNotFound, StoreUnavailable
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.proof.history import CancelAnswered, Depends, Enqueued
from tests.simulation.plan_format import PlannedJob

if TYPE_CHECKING:
    from tests.simulation.cluster import Member, SimulatedRun

NODE_TASKS = ("node", "mortal")
MAX_LIVES = 2
"""After so many replays a dead letter is discarded."""
REPETITIONS = 3
"""A client calls again after an answer that was lost."""


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    parents: tuple[tuple[int, IfParentFails], ...]
    """Places of nodes before this one."""
    seconds: float
    failures: int
    """Of "mortal": the number of its lives that end in death."""


def draw_graph(shape: int) -> list[PlannedNode]:
    """From three to seven nodes. The last one comes later than the others, by a call of its own."""
    dice = random.Random(f"graph {shape}")
    policies = dice.choice((tuple(IfParentFails), (IfParentFails.CANCEL,)))
    nodes: list[PlannedNode] = []
    for place in range(dice.randint(3, 7)):
        parents = dice.sample(range(place), min(place, dice.choice((0, 1, 1, 2, 2, 3))))
        is_mortal = dice.random() < 0.25
        nodes.append(
            PlannedNode(
                task="mortal" if is_mortal else "node",
                parents=tuple((parent, dice.choice(policies)) for parent in parents),
                seconds=dice.choice((0.0, 0.05, 0.5, dice.uniform(0.5, 3.0))),
                failures=dice.choice((1, 1, 2, 9)) if is_mortal else dice.choice((0, 0, 1)),
            )
        )
    return nodes


class GraphClient:
    """One planned graph, and what a client does with it."""

    def __init__(self, run: "SimulatedRun", client: "Member", number: int, job: PlannedJob) -> None:
        self._run = run
        self._client = client
        self._job = job
        self._dice = random.Random(f"client {job.shape}")
        nodes = draw_graph(job.shape)
        self._new = [
            client.app.task_of(node.task).bind(number * 10 + place, node.seconds, node.failures)
            for place, node in enumerate(nodes)
        ]
        self._edges = [
            [NewEdge(parent=self._new[parent].id, child=new.id, if_fails=if_fails) for parent, if_fails in node.parents]
            for new, node in zip(self._new, nodes, strict=True)
        ]

    async def play(self) -> None:
        last = len(self._new) - 1
        if not await self._add(range(last)):
            return
        if self._job.cancel_after is not None:
            await self._run.clock.sleep(self._job.cancel_after)
            await self._cancel(self._dice.choice(self._new[:last]).id)
        await self._run.clock.sleep(self._job.delay)
        await self._add(range(last, last + 1))
        await self._run.clock.sleep(self._job.seconds)
        await self._replay()

    async def _store(self) -> Store:
        store: Store = await self._client.app._internals.client.store()
        return store

    async def _add(self, places: range) -> bool:
        run, asked = self._run, self._run.loop.time()
        jobs = [self._new[place] for place in places]
        edges = [edge for place in places for edge in self._edges[place]]
        batch, first = run.next_batch(), len(run.history.enqueued)
        run.history.enqueued += [Enqueued(id=str(new.id), at=asked, acknowledged=False, batch=batch) for new in jobs]
        run.history.depends += [
            Depends(parent=str(edge.parent), child=str(edge.child), if_fails=str(edge.if_fails)) for edge in edges
        ]
        run.tell(f"adds a graph {[str(new.id) for new in jobs]}")
        if not await self._call_add(NewGraph(jobs=jobs, edges=edges)):
            return False
        for place in range(first, first + len(jobs)):
            call = run.history.enqueued[place]
            run.history.enqueued[place] = msgspec.structs.replace(call, acknowledged=True, answered_at=run.loop.time())
        return True

    async def _call_add(self, graph: NewGraph) -> bool:
        for _ in range(REPETITIONS):
            try:
                await (await self._store()).dependencies.add(graph)
            except StoreUnavailable as error:
                self._run.tell(f"the graph was not added: {error!r}")
                await self._run.clock.sleep(0.5)
            except (JobNotFound, JobExpired) as error:
                self._run.tell(f"the graph was refused: {error!r}")  # a power cut took its parents
                return False
            else:
                return True
        return False

    async def _cancel(self, id: Any) -> None:
        run, cancels = self._run, self._run.history.cancels
        number = len(cancels)
        cancels.append(CancelAnswered(job=str(id), at=run.loop.time(), answer=""))
        with suppress(DrumbeatError):
            [answer] = await (await self._store()).jobs.cancel([id])
            cancels[number] = CancelAnswered(job=str(id), at=run.loop.time(), answer=str(answer))
            run.tell(f"cancel {id}: {answer}")

    async def _replay(self) -> None:
        with suppress(DrumbeatError):
            answers = await (await self._store()).jobs.replay([new.id for new in self._new])
            self._run.tell(f"replayed {[str(answer.id) for answer in answers if answer.replayed]}")


async def tend_letters(store: Store) -> None:
    """What a person does in the end: replay dead letters of graphs, and discard those that die again and again."""
    for letter in await find_jobs(store, JobFilter(dead_letters=True, task="mortal", limit=200)):
        if letter.replays < MAX_LIVES:
            await store.jobs.replay([letter.id])
        else:
            await store.jobs.discard([letter.id])
