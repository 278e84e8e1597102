"""Background acts of this process: their progress, and the button that stops them."""

from __future__ import annotations

import msgspec

from drumbeat.web.api import audit
from drumbeat.web.background_acts import BackgroundAct
from drumbeat.web.request import DashboardRequest

from .action_button import ActionButton, build_button


class BackgroundActView(msgspec.Struct, frozen=True, kw_only=True):
    it: BackgroundAct
    stop: ActionButton | None


def list_background_acts(request: DashboardRequest) -> list[BackgroundActView]:
    """Oldest first; the button needs the role that may start such an act."""
    return [BackgroundActView(it=it, stop=_stop_button(request, it)) for it in request.dashboard.background_acts.list()]


def _stop_button(request: DashboardRequest, it: BackgroundAct) -> ActionButton | None:
    return build_button(
        request,
        audit.stop_act,
        "Stop",
        "Stop this act?",
        of=it.id,
        text="What is done stays done; the rest is left unchanged.",
        confirm="Stop it",
        dismiss="Keep running",
        done="Stopping; the audit shows how far it got",
        danger=True,
    )
