"""A seeded event loop with virtual time, on which all nodes of a simulated cluster run.

    Node    a process of the cluster; it can be killed (its handles are never called again) and paused
    Lane    a thread of a node: its calls run in the order they were made; which lane goes next is drawn

Time does not pass while anything is ready; then it jumps to the next timer. A task or timer belongs to the lane of the context
that it was created in. Tasks and futures have numbered hashes: asyncio keeps them in sets, and would iterate those by address.
"""

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

POLL_STEPS = 8
"""Sockets are polled after so many steps, and whenever nothing is ready."""


class Stuck(Exception):
    """Nothing is ready and no timer is set: the simulated program would hang for ever."""


class StepLimit(Exception):
    """The simulation took more steps than it may: something spins."""


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.withheld: list[asyncio.TimerHandle] = []

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


class Lane:
    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()


LANE: contextvars.ContextVar[Lane] = contextvars.ContextVar("LANE")


class SimulatedTask(asyncio.Task[Any]):
    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedFuture(asyncio.Future[Any]):
    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.SelectorEventLoop):
    _ready: deque[asyncio.Handle]

    def __init__(self, seed: int, *, in_order: bool = False, max_steps: int = 400_000) -> None:
        """`in_order`: the lanes take turns instead of being drawn."""
        super().__init__()
        self._dice = random.Random(f"loop {seed}")
        self._in_order = in_order
        self._now = 0.0
        self._numbers = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.steps = 0
        self.max_steps = max_steps
        self._lanes: list[Lane] = []
        self._harness = self.lane(Node("harness"), "main")
        self._queued_readers: set[int] = set()
        # What dead nodes leave behind must not be collected: that would run their `finally` blocks.
        self._graveyard: list[object] = []
        self._tasks: list[SimulatedTask] = []

    def lane(self, node: Node, name: str) -> Lane:
        lane = Lane(node, name)
        self._lanes.append(lane)
        return lane

    # What asyncio calls.

    def time(self) -> float:
        return self._now

    def create_future(self) -> "asyncio.Future[Any]":
        return SimulatedFuture(self._number(), loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: contextvars.Context | None = None) -> Any:
        """A task with the name of a thread of ours has a lane of its own."""
        if isinstance(name, str) and name.startswith("drumbeat"):
            context = contextvars.copy_context() if context is None else context
            context.run(LANE.set, self.lane(self._lane_of(context).node, name))
        options = {} if context is None else {"context": context}
        task = SimulatedTask(self._number(), coro, loop=self, name=name, **options)
        self._tasks.append(task)
        return task

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _write_to_self(self) -> None:
        """There is only this thread."""

    def _add_callback(self, handle: asyncio.Handle) -> None:
        # A socket stays readable until its handle has run.
        if id(handle) not in self._queued_readers:
            self._queued_readers.add(id(handle))
            super()._add_callback(handle)  # type: ignore[misc]

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's, without its checks."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Timers of the same time are due in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._number(), timer))
        return timer

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > self.max_steps:
            raise StepLimit(f"{self.max_steps} steps at {self._now:.3f} s")
        if self.steps % POLL_STEPS == 0:
            self._poll()
        lane = self._next_lane()
        while lane is None:
            self._poll()
            lane = self._next_lane() or self._advance()
        handle = lane.ready.popleft()
        if self._queued_readers:
            self._queued_readers.discard(id(handle))
        if not handle._cancelled:
            handle._run()

    # How the next step is chosen.

    def _next_lane(self) -> Lane | None:
        self._sort_ready()
        ready = [lane for lane in self._lanes if lane.ready and not lane.node.is_paused]
        if not ready:
            return None
        if self._in_order or len(ready) == 1:
            return ready[self.steps % len(ready)]
        return ready[int(self._dice.random() * len(ready))]

    def _sort_ready(self) -> None:
        for handle in self._ready:
            lane = handle._context.get(LANE, self._harness)  # type: ignore[attr-defined]
            (lane.ready if lane.node.is_alive else self._graveyard).append(handle)
        self._ready.clear()

    def _advance(self) -> Lane | None:
        """Let time pass to the next timer, and make everything ready that is due."""
        due: list[asyncio.Handle] = []
        while self._timers:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled():
                continue
            lane = self._lane_of(timer._context)  # type: ignore[attr-defined]
            if not lane.node.is_alive:
                self._graveyard.append(timer)
            elif lane.node.is_paused:
                lane.node.withheld.append(timer)
            else:
                self._now = max(self._now, when)
                due.append(timer)
                break
        if not due:
            raise Stuck(f"nothing is ready and no timer is set, at {self._now:.3f} s")
        self._ready.extend(due)
        return self._next_lane()

    def _poll(self) -> None:
        self._process_events(self._selector.select(0))  # type: ignore[attr-defined]

    def _lane_of(self, context: contextvars.Context) -> Lane:
        return context.get(LANE, self._harness)

    # Faults.

    def kill(self, node: Node) -> None:
        """As SIGKILL: nothing of the node runs any more, no `finally` and no `except` either."""
        node.is_alive = False
        self._sort_ready()
        for lane in self._lanes:
            if lane.node is node:
                self._graveyard.extend(lane.ready)
                lane.ready.clear()
        self._lanes = [lane for lane in self._lanes if lane.node is not node]
        for key in list(self._selector.get_map().values()):  # type: ignore[attr-defined]
            reader = key.data[0] if key.data else None
            if reader is not None and self._lane_of(reader._context).node is node:
                self._graveyard.append(reader)
                self.remove_reader(key.fileobj)

    def pause(self, node: Node) -> None:
        """As SIGSTOP."""
        node.is_paused = True

    def resume(self, node: Node) -> None:
        node.is_paused = False
        if node.is_alive:
            self._ready.extend(node.withheld)
        node.withheld.clear()

    def bury(self, thing: object) -> None:
        """Keep a reference until the loop is disposed of."""
        self._graveyard.append(thing)

    def dispose(self) -> None:
        """Close the loop and drop all tasks. Their `finally` blocks run on a closed loop: what they do is of no account."""
        self.set_exception_handler(lambda loop, context: None)
        self.close()
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
        self._tasks.clear()
        self._timers.clear()
        self._graveyard.clear()
        self._lanes.clear()


def spawn_on(loop: SimulatedLoop, lane: Lane, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """A task of this lane."""
    context = contextvars.copy_context()
    context.run(LANE.set, lane)
    task: asyncio.Task[Any] = loop.create_task(coroutine, context=context)
    loop.bury(task)
    return task


class SimulatedClock:
    """The clocks of a simulated machine: wall time can be stepped, for all its nodes at once."""

    inline = True
    START_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset_us = 0

    def now_us(self) -> int:
        return self.START_US + round(self._loop.time() * 1e6) + self.offset_us

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        over = self._loop.create_future()
        timer = self._loop.call_later(seconds, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    def call_later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, call)
