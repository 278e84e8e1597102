"""The kit for tests without an event loop. It runs on the loop behind `app.sync`, where `enqueue_sync` stores, too."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from drumbeat.sync_loop import SYNC_LOOP, SyncMethod, SyncPart
from drumbeat.testing.kit import Kit

if TYPE_CHECKING:
    from drumbeat.testing.virtual_clock import VirtualClock


class SyncKit(SyncPart[Kit]):
    """As `Kit`; what is awaited there blocks here."""

    run_until_idle = SyncMethod(Kit.run_until_idle)
    advance = SyncMethod(Kit.advance)
    perform = SyncMethod(Kit.perform)
    job = SyncMethod(Kit.job)
    result = SyncMethod(Kit.result)

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit)
        self.enqueued = kit.enqueued
        self.assert_enqueued = kit.assert_enqueued
        self.refute_enqueued = kit.refute_enqueued
        self.ran = kit.ran
        self.outage = kit.outage
        self.jump = kit.jump
        self.clock: VirtualClock = kit.clock

    def now(self) -> datetime:
        return self._part.now()

    def crash(self) -> None:
        """As `Kit.crash`."""

        async def crash() -> None:
            self._part.crash()

        SYNC_LOOP.run("kit.crash", crash())

    def enter(self) -> SyncKit:
        SYNC_LOOP.run("with Kit(app)", self._part.__aenter__())
        return self

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        SYNC_LOOP.run("with Kit(app)", self._part.__aexit__(kind, error, trace))
