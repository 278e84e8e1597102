"""Acts that continue in this process after their response: their progress, and how they are stopped.

They are not in the store: an act belongs to the process that received the request, ends with it, and can be watched and
stopped only there. The audit, which every process can read, has who, what and the outcome.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.admin.bulk import BulkProgress


class BackgroundAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act in progress."""

    id: str
    """Of its record in the audit."""
    who: str
    what: str
    """The action and its target."""
    began_at: datetime
    matched: int
    """Number of jobs at the start."""
    is_capped: bool
    """There were more: counting stopped here."""
    rate: float | None
    """Limit in jobs per second; None: no limit."""
    progress: BulkProgress

    @property
    def left(self) -> float | None:
        """Estimated seconds left; None: unknown."""
        if self.rate is None or self.is_capped:
            return None
        return max(0, self.matched - self.progress.touched) / self.rate


class BackgroundActs:
    """All acts in progress, oldest first."""

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
