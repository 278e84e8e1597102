"""Buttons for writes: their confirmation dialog and the role they need. static/dialogs.js shows the dialog and calls the API.

A button that the caller may not use is None, and the template shows nothing; the API checks the role again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from drumbeat.web.api import dead
from drumbeat.web.api.route_table import API_ROUTES
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import Handler

from .formatting import quote_segment

DANGER: dict[str, Any] = {"danger": True, "reason": "required"}
"""Of a button whose act cannot be undone."""
_ROUTES = {route.handler: route for route in API_ROUTES}


class DialogField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a dialog besides the reason."""

    name: str
    """Its place in the body: weight, limits.0.rate."""
    label: str
    kind: Literal["number", "check"] = "number"
    value: float | bool | None = None
    max: int | None = None


class ActionButton(msgspec.Struct, frozen=True, kw_only=True):
    """One button with its dialog."""

    name: str
    """For tests and styles: `act-<name>`."""
    label: str
    url: str
    """A path of the API, without the prefix."""
    title: str
    """The dialog's heading: Cancel this job?"""
    text: str = ""
    """The effect, in a sentence or two."""
    confirm: str = ""
    """Label of the confirming button; empty: as the label."""
    dismiss: str = "Cancel"
    """Label of the other button."""
    done: str = "Done"
    """The message afterwards; {n} is the number touched, {s} its plural s."""
    method: Literal["POST", "PUT", "DELETE"] = "POST"
    body: str = "{}"
    """JSON text."""
    danger: bool = False
    reason: Literal["", "optional", "required"] = "optional"
    rate: bool = False
    """Ask for a rate."""
    fields: str = ""
    """JSON text of a list of DialogField; empty: none."""
    bulk: bool = False
    """Acts on a selection or a filter: a dry run counts the jobs first."""
    then: str = ""
    """Where to go afterwards; empty: nowhere."""
    leads: str = ""
    """The link of the message; {id} is the id in the response. Empty: none."""


def build_button(
    request: DashboardRequest,
    handler: Handler,
    label: str,
    title: str,
    *,
    of: str = "",
    body: Mapping[str, object] | None = None,
    fields: Sequence[DialogField] = (),
    **more: Any,
) -> ActionButton | None:
    """The button of a write of the API, or None for a caller without the role of its route; `of` is the name in its path."""
    route = _ROUTES[handler]
    if route.role is None or not request.has_role(route.role):
        return None
    url = re.sub(r"\{\w+\}", quote_segment(of), route.path)
    given = {"name": url.rpartition("/")[2], "confirm": label, "method": route.method, **more}
    given["fields"] = msgspec.json.encode(fields).decode() if fields else ""
    return ActionButton(label=label, url=url, title=title, body=msgspec.json.encode(body or {}).decode(), **given)


def replay_and_discard_buttons(
    request: DashboardRequest,
    replay_title: str = "Replay these dead letters?",
    discard_title: str = "Discard these dead letters?",
    *,
    body: Mapping[str, object] | None = None,
    suffix: str = "",
) -> list[ActionButton]:
    """For many dead letters: a group by `body`, or the selected ones."""
    replay = build_button(
        request,
        dead.replay_many,
        "Replay",
        replay_title,
        name=f"replay{suffix}",
        text="Each is ready again, with all its retries.",
        body=body,
        done="{n} dead letter{s} replayed",
        rate=True,
        bulk=True,
    )
    discard = build_button(
        request,
        dead.discard_many,
        "Discard",
        discard_title,
        name=f"discard{suffix}",
        text="They will not run again. They stay in history until they are pruned.",
        body=body,
        done="{n} dead letter{s} discarded",
        bulk=True,
        **DANGER,
    )
    return list(filter(None, (replay, discard)))
