"""Panels of a program's own: `Dashboard(host, extra=[Panel(...)])` puts a few buttons on the overview.

Each button is an ordinary write of the API, POST /api/v1/<panel>/<button>: its role and origin are checked, it stands in the
audit as <panel>.<button>, and a request that is sent twice acts once. The rest of the dashboard knows no panel by name.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import msgspec

from drumbeat.web.fields import doc
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import API_PREFIX, AccessRole, Handler, Route, make_route

_NAME = re.compile(r"[a-z]+(_[a-z]+)*")


class ButtonResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a button."""

    message: Annotated[str, doc("A sentence for whoever pressed it.")]
    touched: Annotated[int, doc("How many jobs, workers or whatever it was about; for the audit.")] = 1


ButtonAction = Callable[[], Awaitable[ButtonResult]]


class Button(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    label: str
    text: str
    """What it does, in a few words."""
    action: ButtonAction
    role: AccessRole = AccessRole.OPERATOR
    danger: bool = False
    """Ask before."""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    text: str
    buttons: tuple[Button, ...]

    def path(self, button: Button) -> str:
        return f"{API_PREFIX}/{self.name}/{button.name}"


def panel_routes(panels: Iterable[Panel]) -> tuple[Route, ...]:
    """The rows that these panels add to the table of routes."""
    return tuple(_route(panel, button) for panel in panels for button in panel.buttons)


def _route(panel: Panel, button: Button) -> Route:
    for name in (panel.name, button.name):
        if not _NAME.fullmatch(name):
            raise ValueError(f"a panel or button is called by small letters and _, not {name!r}")
    summary = f"{panel.title}: {button.text}"
    return make_route(
        f"POST {panel.path(button)}", _handler(button.action), summary, button.role, f"{panel.name}.{button.name}"
    )


def _handler(press: ButtonAction) -> Handler:
    async def pressed(request: DashboardRequest) -> ButtonResult:
        return await press()

    return pressed
