"""A store that fails on purpose: before a call, after it (the effect is there, the answer is lost), or refusing it."""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec

from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.core.claim import ClaimResult
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.store.protocol import Store, Wake
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.testing.store_wrapper import StoreCall, WrappedStore


class FaultyStore(WrappedStore):
    """Stands before a real store. Calls are named as in "jobs.report_and_claim"."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, self._disturb)
        self.fail_before: Counter[str] = Counter()
        """So many of the next calls fail without an effect."""
        self.fail_after: Counter[str] = Counter()
        """So many of the next calls have their effect, and their answer is lost."""
        self.refuse: Callable[[str, tuple[Any, ...]], bool] = lambda call, args: False
        """Calls that the store says no to, for good."""
        self.done_at: dict[str, float] = {}
        """When the last call of each operation had its effect; monotonic."""
        self.is_down = False
        """Nothing is taken, and what was under way is not answered."""
        self.first: tuple[int, StoreError] | None = None
        """So many of the first calls of each operation fail with this error, without an effect."""
        self.late_requests: dict[str, Callable[[], Awaitable[object]]] = {}
        """The next of these calls waits for this before it is made."""
        self.late_answers: dict[str, Callable[[], Awaitable[object]]] = {}
        """The next answer of these calls waits for this; calls after it are answered at once."""
        self.late_handoffs: list[Callable[[], None]] | None = None
        """If a list: what claims get later is not delivered, but kept here, to be called."""
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return FaultyWake(self, self._store.wake) if name == "wake" else super().__getattr__(name)

    def _disturb(self, call: str, real: StoreCall) -> StoreCall:
        async def called(*args: Any, **kwargs: Any) -> Any:
            self.calls[call] += 1
            if self.is_down or self.fail_before[call] > 0:
                self.fail_before[call] = max(0, self.fail_before[call] - 1)
                raise StoreUnavailable("down on purpose")
            if self.first is not None and self.calls[call] <= self.first[0]:
                raise self.first[1]
            if self.refuse(call, args):
                raise StoreError("refused on purpose")
            if (wait := self.late_requests.pop(call, None)) is not None:
                await wait()
            answer = await real(*args, **kwargs)
            self.done_at[call] = SYSTEM.monotonic()
            if (wait := self.late_answers.pop(call, None)) is not None:
                await wait()
            if self.is_down or self.fail_after[call] > 0:  # type: ignore[redundant-expr]
                self.fail_after[call] = max(0, self.fail_after[call] - 1)
                raise StoreUnavailable("the answer was lost on purpose")
            return answer

        return called


class FaultyWake:
    """Of what claims got later, so many of `fail_after["wake.handoff"]` are lost on their way, and all while it is down."""

    def __init__(self, faulty: FaultyStore, wake: Wake) -> None:
        self._faulty = faulty
        self._wake = wake

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._wake, operation)

    def listen(self, subscriber: Subscriber) -> AbstractAsyncContextManager[str | None]:
        given = subscriber.on_handoff
        if given is None:
            return self._wake.listen(subscriber)

        def heard(instance: InstanceId, answer: ClaimResult) -> None:
            self._faulty.calls["wake.handoff"] += 1
            if self._faulty.fail_after["wake.handoff"] > 0:
                self._faulty.fail_after["wake.handoff"] -= 1
            elif self._faulty.late_handoffs is not None:
                self._faulty.late_handoffs.append(partial(given, instance, answer))
            elif not self._faulty.is_down:
                given(instance, answer)

        return self._wake.listen(msgspec.structs.replace(subscriber, on_handoff=heard))


class FaultyProgram:
    """An app whose worker talks to a faulty store; clients do not."""

    def __init__(self, app: Drumbeat) -> None:
        self._app = app
        self._internals = self
        self.faults: FaultyStore | None = None
        self.heart: FaultyStore | None = None
        self.first: tuple[int, StoreError] | None = None
        """For every store that is opened from now on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app._internals, name)

    async def store(self) -> Any:
        if self.faults is None:
            self.faults = FaultyStore(await self._app._internals.store())
            self.faults.first = self.first
        return self.faults

    async def open_store(self) -> Any:
        self.heart = FaultyStore(await self._app._internals.open_store())
        self.heart.first = self.first
        return self.heart
