"""System: what a person should know of the store and the cluster on it, and the settings with where they come from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumbeat.model.finding import Finding, Level
from drumbeat.web.api import system
from drumbeat.web.api.system import SettingRecord, SystemRecord
from drumbeat.web.call import Answer, Call

from .rendering import render

ORDER = (Level.BAD, Level.WARN, Level.NOTE, Level.OK)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """All findings in a word."""

    level: Level
    words: str


def verdict(findings: Sequence[Finding]) -> Verdict:
    numbers = {level: sum(finding.level is level for finding in findings) for level in ORDER}
    level = next((level for level in ORDER if numbers[level]), Level.OK)
    if level in (Level.OK, Level.NOTE):
        return Verdict(level=Level.OK, words=f"All {len(findings)} checks are fine")
    parts = [(numbers[Level.BAD], "wrong"), (numbers[Level.WARN], "worth a look")]
    return Verdict(level=level, words=", ".join(f"{number} {word}" for number, word in parts if number))


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Those of one level stay in their order."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.level))


def chosen_first(settings: Sequence[SettingRecord]) -> list[SettingRecord]:
    """What somebody has set comes before what nobody has."""
    return sorted(settings, key=lambda setting: (setting.origin == "default", setting.name))


async def index(call: Call) -> Answer:
    """GET /system."""
    record: SystemRecord = await call.ask(system.show)
    return await render(
        call,
        "system.html",
        page="system",
        title="System",
        record=record,
        verdict=verdict(record.findings),
        findings=worst_first(record.findings),
        settings=chosen_first(record.settings),
    )
