"""Panels for one caller, without the buttons that it may not use."""

from __future__ import annotations

import msgspec

from drumbeat.web.panels import Button, Panel
from drumbeat.web.request import DashboardRequest

from .action_button import ActionButton
from .formatting import sentence


class ButtonView(msgspec.Struct, frozen=True, kw_only=True):
    button: Button
    path: str
    act: ActionButton | None
    """Its dialog; None: no confirmation."""


class PanelView(msgspec.Struct, frozen=True, kw_only=True):
    panel: Panel
    buttons: list[ButtonView]


def panels_for(request: DashboardRequest) -> list[PanelView]:
    """Panels with a button that the caller may use."""
    shown = [PanelView(panel=panel, buttons=_buttons(request, panel)) for panel in request.dashboard.panels]
    return [each for each in shown if each.buttons]


def _buttons(request: DashboardRequest, panel: Panel) -> list[ButtonView]:
    return [
        ButtonView(
            button=button,
            path=panel.path(button),
            act=_confirm_button(panel, button) if button.danger else None,
        )
        for button in panel.buttons
        if request.has_role(button.role)
    ]


def _confirm_button(panel: Panel, button: Button) -> ActionButton:
    return ActionButton(
        name=button.name,
        label=button.label,
        url=panel.path(button),
        title=f"{button.label}?",
        text=f"{sentence(button.text)}.",
        confirm=button.label,
        danger=True,
    )
