"""Acts on many jobs that go on in the background of any process: their progress, and the button that stops them."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from drumbeat.core.audit import ActState
from drumbeat.web.api import audit
from drumbeat.web.api.audit import ActRecord
from drumbeat.web.request import DashboardRequest

from .action_button import ActionButton, build_button

PAGES = frozenset({"overview", "jobs", "dead", "audit"})
"""Those that show them."""
MAX_SHOWN = 10
INTERRUPTED_SHOWN_FOR = timedelta(minutes=10)
"""Then an interrupted act is only in the audit."""


class BackgroundActView(msgspec.Struct, frozen=True, kw_only=True):
    act: ActRecord
    left: float | None
    """Estimated seconds left; None: unknown."""
    stop: ActionButton | None

    @property
    def is_running(self) -> bool:
        return self.act.state is ActState.RUNNING

    @property
    def what(self) -> str:
        return f"{self.act.verb.rpartition('.')[2]}: {self.act.target}"


async def list_background_acts(request: DashboardRequest, page: str) -> list[BackgroundActView]:
    """Newest first; the button needs the role that may start such an act."""
    if page not in PAGES:
        return []
    found = (await audit.list_acts(request, audit.AuditQuery(unended=True, limit=MAX_SHOWN))).items
    now = await request.store_time()
    return [view_of(request, act, now) for act in found if _is_shown(act, now)]


def view_of(request: DashboardRequest, act: ActRecord, now: datetime) -> BackgroundActView:
    is_stoppable = act.state is ActState.RUNNING and act.stopped_by is None
    return BackgroundActView(
        act=act, left=estimate_left(act, now), stop=_stop_button(request, act) if is_stoppable else None
    )


def estimate_left(act: ActRecord, now: datetime) -> float | None:
    """By its speed until now."""
    if not act.touched or act.matched is None or act.state is not ActState.RUNNING:
        return None
    return max(0, act.matched - act.touched) * (now - act.at).total_seconds() / act.touched


def _is_shown(act: ActRecord, now: datetime) -> bool:
    return act.state is ActState.RUNNING or (
        act.reported_at is not None and now - act.reported_at < INTERRUPTED_SHOWN_FOR
    )


def _stop_button(request: DashboardRequest, act: ActRecord) -> ActionButton | None:
    return build_button(
        request,
        audit.stop_act,
        "Stop",
        "Stop this act?",
        of=act.id,
        text="What is done stays done; the rest is left unchanged.",
        confirm="Stop it",
        dismiss="Keep running",
        done="Stopping; the audit shows how far it got",
        danger=True,
    )
