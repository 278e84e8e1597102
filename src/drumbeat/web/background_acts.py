"""Acts that go on after their answer, in this process: how far each has come, and how it is stopped.

Nothing of this is in the store: an act belongs to the process that was asked for it, ends with it, and can be watched and
stopped there. What the audit has of it, who, what and how it ended, every process can read.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.admin.bulk import BulkProgress


class BackgroundAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act that is under way."""

    id: str
    """Of its record in the audit."""
    who: str
    what: str
    """What is done, and to which jobs."""
    began_at: datetime
    matched: int
    """How many jobs there were to begin with."""
    is_capped: bool
    """There were more: nobody counted beyond."""
    rate: float | None
    """At most so many in a second; None: as fast as it goes."""
    progress: BulkProgress

    @property
    def left(self) -> float | None:
        """Seconds that it will still take by its rate; None: nobody knows."""
        if self.rate is None or self.is_capped:
            return None
        return max(0, self.matched - self.progress.touched) / self.rate


class BackgroundActs:
    """All that are under way, oldest first."""

    def __init__(self) -> None:
        self._acts: dict[str, BackgroundAct] = {}

    def begin(self, act: BackgroundAct) -> None:
        self._acts[act.id] = act

    def end(self, id: str) -> None:
        self._acts.pop(id, None)

    def get(self, id: str) -> BackgroundAct | None:
        return self._acts.get(id)

    def list(self) -> list[BackgroundAct]:
        return list(self._acts.values())
