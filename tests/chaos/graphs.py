"""Graphs of jobs under chaos: those of the simulation, stored as users store them, with a call behind or as a workflow."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from drumbeat import Drumbeat, Flow, JobHandle, NewJob
from drumbeat.clock import SYSTEM
from tests.chaos import journal
from tests.simulation.graphs import draw_graph

Enqueue = Callable[..., Awaitable[Any]]


async def grow(app: Drumbeat, tasks: dict[str, Any], enqueue: Enqueue, dice: random.Random) -> None:
    """Store a graph: all of it but the last job, which comes later, behind parents that may have ended. Half of them are
    workflows; in some of them a job is cancelled."""
    shape = dice.getrandbits(30)
    nodes = draw_graph(shape)
    calls: list[NewJob[Any]] = []
    for node in nodes[:-1]:
        calls.append(bind(tasks[node.task], node, shape, [calls[place] for place, _ in node.parents]))
    write_edges(calls)
    if dice.random() < 0.5:
        handles = await enqueue(calls, whole=True)
    else:
        flow = app.workflow("chaos")
        for call in calls:
            flow.add(call)
        handles = await enqueue(calls, whole=True, send=lambda: store_flow(flow))
    if dice.random() < 0.2:
        await SYSTEM.sleep(dice.uniform(0.0, 1.0))
        handle = dice.choice(handles)
        journal.write("cancelled", job=str(handle.id), answer=str(await handle.cancel()))
    await SYSTEM.sleep(dice.choice((0.0, dice.uniform(0.0, 2.0))))
    last = nodes[-1]
    call = bind(tasks[last.task], last, shape, [calls[place].id for place, _ in last.parents])
    write_edges([call])
    await enqueue([call])


async def store_flow(flow: Flow) -> Sequence[JobHandle[Any]]:
    return (await flow.enqueue()).jobs


def bind(task: Any, node: Any, shape: int, after: Sequence[Any]) -> NewJob[Any]:
    if after:
        task = task.using(after=after, if_parent_fails=str(node.parents[0][1]))
    call: NewJob[Any] = task.bind(shape % 1_000, node.seconds, node.failures)
    return call


def write_edges(calls: Sequence[NewJob[Any]]) -> None:
    for call in calls:
        for edge in call.after:
            journal.write("depends", parent=str(edge.parent), child=str(edge.child), if_fails=str(edge.if_fails))
