"""Acts on many jobs that go on in the background of this process: how far each is, and the button that stops it."""

from __future__ import annotations

import msgspec

from drumbeat.web.background import BackgroundAct
from drumbeat.web.call import Call, Role

from .acting import Act, act


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    it: BackgroundAct
    stop: Act | None


def under_way(call: Call) -> list[UnderWay]:
    """Oldest first; the button is for those who may have begun it."""
    return [UnderWay(it=it, stop=_stop(call, it)) for it in call.parts.background.list()]


def _stop(call: Call, it: BackgroundAct) -> Act | None:
    return act(
        call,
        Role.ADMIN,
        name="stop",
        label="Stop",
        url=f"/api/v1/audit/{it.id}/stop",
        title="Stop this act?",
        text="What it has done so far stays done; the rest is left as it is.",
        confirm="Stop it",
        dismiss="Let it go on",
        done="It stops; the audit says how far it came",
        danger=True,
    )
