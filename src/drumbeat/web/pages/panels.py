"""The panels of the program's own, for one caller: without the buttons that it may not press."""

from __future__ import annotations

import msgspec

from drumbeat.web.call import Call
from drumbeat.web.panels import Button, Panel

from .acting import Act, act


class ShownButton(msgspec.Struct, frozen=True, kw_only=True):
    button: Button
    path: str
    act: Act | None
    """Its question; None: it is pressed at once."""


class ShownPanel(msgspec.Struct, frozen=True, kw_only=True):
    panel: Panel
    buttons: list[ShownButton]


def panels_for(call: Call) -> list[ShownPanel]:
    """Those with a button that the caller may press."""
    shown = [ShownPanel(panel=panel, buttons=_buttons(call, panel)) for panel in call.parts.panels]
    return [each for each in shown if each.buttons]


def _buttons(call: Call, panel: Panel) -> list[ShownButton]:
    return [
        ShownButton(button=button, path=panel.path(button), act=_act(call, panel, button) if button.danger else None)
        for button in panel.buttons
        if call.may(button.role)
    ]


def _act(call: Call, panel: Panel, button: Button) -> Act | None:
    return act(
        call,
        button.role,
        name=button.name,
        label=button.label,
        url=panel.path(button),
        title=f"{button.label}?",
        text=f"{button.text[:1].upper()}{button.text[1:]}.",
        danger=True,
    )
