"""Buttons that change something: what each asks before it acts, and for whom it is there. static/dialogs.js does the rest.

An Act that the caller may not do is None, and the template shows nothing: the API checks again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import AccessRole


class ActionButton(msgspec.Struct, frozen=True, kw_only=True):
    """One button with its question."""

    name: str
    """For tests and styles: act-<name>."""
    label: str
    url: str
    """Of the API, without what stands before all paths."""
    title: str
    """The question's heading: Cancel this job?"""
    text: str = ""
    """What it does, in a sentence or two."""
    confirm: str = ""
    """What the deciding button says; empty: as the label."""
    dismiss: str = "Cancel"
    """What the other button says."""
    done: str = "Done"
    """What is said afterwards; {n} is how many were touched, {s} the s of more than one."""
    method: Literal["POST", "PUT", "DELETE"] = "POST"
    body: str = "{}"
    """JSON text."""
    danger: bool = False
    reason: Literal["", "optional", "required"] = "optional"
    rate: bool = False
    """Ask how many a second."""
    bulk: bool = False
    """It goes by a selection or a filter: a dry run says how many it would touch."""
    then: str = ""
    """Where to go afterwards; empty: stay."""
    leads: str = ""
    """Where the notice leads that it is done; {id} is the id in the answer. Empty: nowhere."""


def build_button(
    request: DashboardRequest,
    role: AccessRole,
    *,
    name: str,
    label: str,
    url: str,
    title: str,
    body: Mapping[str, object] | None = None,
    **more: object,
) -> ActionButton | None:
    """The button, or None for somebody who may not press it."""
    if not request.has_role(role):
        return None
    made = ActionButton(name=name, label=label, url=url, title=title, body=msgspec.json.encode(body or {}).decode())
    given = {"confirm": label, **more}
    return msgspec.structs.replace(made, **given)


def replay_and_discard_buttons(
    request: DashboardRequest,
    replay_title: str = "Replay these dead letters?",
    discard_title: str = "Discard these dead letters?",
    *,
    body: Mapping[str, object] | None = None,
    suffix: str = "",
) -> list[ActionButton]:
    """For many dead letters: a group by `body`, or the selected ones."""
    made = (
        build_button(
            request,
            AccessRole.ADMIN,
            name=f"replay{suffix}",
            label="Replay",
            url="/api/v1/dead/replay",
            title=replay_title,
            text="Each is ready again, with all its retries.",
            body=body,
            done="{n} dead letter{s} replayed",
            rate=True,
            bulk=True,
        ),
        build_button(
            request,
            AccessRole.ADMIN,
            name=f"discard{suffix}",
            label="Discard",
            url="/api/v1/dead/discard",
            title=discard_title,
            text="They will not run again. They stay in history until they are pruned.",
            body=body,
            done="{n} dead letter{s} discarded",
            danger=True,
            reason="required",
            bulk=True,
        ),
    )
    return [one for one in made if one is not None]
