"""Every state that a page shows has a colour in the style sheet and an icon in the sprite: nothing else checks these names."""

import re
from pathlib import Path

import drumbeat.web
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import InstanceState
from drumbeat.core.job import JobState, OutcomeKind, PendingView
from drumbeat.core.schedule import FireOutcome, ScheduleState

FOLDER = Path(drumbeat.web.__file__).parent
PENDING = {"pending"}
"""A pending job is shown by its view."""


def test_every_state_has_a_colour_and_an_icon() -> None:
    enums = (JobState, PendingView, OutcomeKind, FireOutcome, ScheduleState, InstanceState, HealthLevel)
    words = {str(member) for enum in enums for member in enum} - PENDING
    styles = (FOLDER / "static" / "app.css").read_text(encoding="utf-8")
    sprite = (FOLDER / "pages" / "templates" / "sprite.html").read_text(encoding="utf-8")
    assert words - set(re.findall(r"\.s-(\w+)", styles)) == set()
    assert words - set(re.findall(r'id="i-s-(\w+)"', sprite)) == set()
