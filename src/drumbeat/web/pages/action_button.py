"""Buttons for writes: their confirmation dialog and the role they need. static/dialogs.js shows the dialog and calls the API.

A button that the caller may not use is None, and the template shows nothing; the API checks the role again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import AccessRole


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
    bulk: bool = False
    """Acts on a selection or a filter: a dry run counts the jobs first."""
    then: str = ""
    """Where to go afterwards; empty: nowhere."""
    leads: str = ""
    """The link of the message; {id} is the id in the response. Empty: none."""


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
    """The button, or None for a caller without the role."""
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
