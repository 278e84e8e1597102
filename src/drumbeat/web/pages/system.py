"""System: health checks of store and cluster, and settings with their origins."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.web.api import system
from drumbeat.web.api.system import SettingRecord
from drumbeat.web.request import DashboardRequest

from .layout import render_page

SEVERITY_ORDER = (HealthLevel.BAD, HealthLevel.WARN, HealthLevel.NOTE, HealthLevel.OK)


class DoctorVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of all checks."""

    level: HealthLevel
    words: str


def summarize_checks(findings: Sequence[HealthCheck]) -> DoctorVerdict:
    numbers = {level: sum(finding.level is level for finding in findings) for level in SEVERITY_ORDER}
    level = next((level for level in SEVERITY_ORDER if numbers[level]), HealthLevel.OK)
    if level in (HealthLevel.OK, HealthLevel.NOTE):
        return DoctorVerdict(level=HealthLevel.OK, words=f"All {len(findings)} checks passed")
    parts = [(numbers[HealthLevel.BAD], "wrong"), (numbers[HealthLevel.WARN], "to check")]
    return DoctorVerdict(level=level, words=", ".join(f"{number} {word}" for number, word in parts if number))


def sort_by_severity(findings: Sequence[HealthCheck]) -> list[HealthCheck]:
    """Worst first; stable within a level."""
    return sorted(findings, key=lambda finding: SEVERITY_ORDER.index(finding.level))


def sort_settings(settings: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Settings that were set come before defaults."""
    return sorted(settings, key=lambda setting: (setting.origin == "default", setting.name))


async def index(request: DashboardRequest) -> Response:
    """GET /system."""
    record = await system.show(request)
    return await render_page(
        request,
        "system.html",
        page="system",
        title="System",
        record=record,
        verdict=summarize_checks(record.findings),
        findings=sort_by_severity(record.findings),
        settings=sort_settings(record.settings),
    )
