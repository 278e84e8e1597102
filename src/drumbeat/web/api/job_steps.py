"""`/api/v1/jobs/{id}/steps` and `/signal`: what a job has on record of its runs, and what others tell it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Raw, UnsetType

from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import StepRecord
from drumbeat.redaction import HIDDEN, redact_json
from drumbeat.web.fields import Reason, doc
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest, refuse_with

MAX_PREVIEW_CHARS = 4_096
"""Characters of each result and payload."""


class StepsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Steps, sleeps and waits of a job, in the order in which they began, and its signals, oldest first. In texts, values named
    like a secret are hidden, and only the first 4,096 characters are here."""

    steps: list[StepRecord]
    signals: list[SignalRecord]


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal to send."""

    name: Annotated[str, doc("What the job waits for.")]
    payload: Annotated[Raw | UnsetType, doc("Any JSON value; default: null.")] = UNSET
    id: Annotated[str | None, doc("Of your own: repeated calls with it send one signal.")] = None
    reason: Reason = ""


class SentSignal(msgspec.Struct, frozen=True, kw_only=True):
    """The signal is stored: the job reads it once, now or later."""

    id: str


async def list_steps(request: DashboardRequest, id: str) -> StepsRecord:
    await request.app.jobs.show(id)
    return await load_steps(request, id)


async def load_steps(request: DashboardRequest, id: str) -> StepsRecord:
    """Of a job that exists."""
    steps, signals = await request.app.jobs.steps(id), await request.app.jobs.signals(id)
    return StepsRecord(
        steps=[msgspec.structs.replace(each, result=_shorten(each.result)) for each in steps],
        signals=[msgspec.structs.replace(each, payload=_shorten(each.payload) or "") for each in signals],
    )


async def send_signal(request: DashboardRequest, id: str, body: SignalBody) -> SentSignal:
    text = "null" if body.payload is UNSET else bytes(body.payload).decode()
    if HIDDEN in text:
        raise Problem(422, "payload contains a redacted value (•••); enter it again", argument="payload")
    sending = request.app.jobs.signal(id, body.name, msgspec.json.decode(text), signal_id=body.id)
    sent = SentSignal(id=await refuse_with(409, sending))
    request.touched = 1
    return sent


def _shorten(text: str | None) -> str | None:
    return None if text is None else redact_json(text[:MAX_PREVIEW_CHARS])
