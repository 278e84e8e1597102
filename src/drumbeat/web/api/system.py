"""`/api/v1/system`: health checks of the store, and settings with their origins."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import msgspec

from drumbeat.admin.doctor import worst_level
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.redaction import mask_url, mask_urls
from drumbeat.settings import NAMES, Settings
from drumbeat.web.fields import doc
from drumbeat.web.request import DashboardRequest

SECRET_SETTINGS = frozenset({"dashboard_tokens"})
URL_SETTINGS = frozenset({"url", "coordination", "outbox"})


class SettingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the process that serves this response."""

    name: str
    value: Annotated[str, doc("As text; passwords and tokens are hidden.")]
    origin: Annotated[str, doc("A flag, code, environment, .env or default.")]


class SystemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The store, and the process that serves this response."""

    drumbeat: Annotated[str, doc("Its version.")]
    python: str
    store: Annotated[str, doc("Its URL, without a password.")]
    level: Annotated[HealthLevel, doc("Of the worst check.")]
    findings: Annotated[
        list[HealthCheck], doc("Checks of the store and of the cluster: the output of `drumbeat doctor`.")
    ]
    settings: list[SettingRecord]


async def show(request: DashboardRequest) -> SystemRecord:
    store = await request.app.store()
    findings = [
        msgspec.structs.replace(each, value=mask_urls(each.value), advice=mask_urls(each.advice))
        for each in await request.app.system.doctor()
    ]
    return SystemRecord(
        drumbeat=_version(),
        python=platform.python_version(),
        store=mask_url(store.url),
        level=worst_level(findings),
        findings=findings,
        settings=[_setting(request.app.settings, name) for name in NAMES],
    )


def _setting(settings: Settings, name: str) -> SettingRecord:
    return SettingRecord(name=name, value=_format_value(name, getattr(settings, name)), origin=settings.origin[name])


def _format_value(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in SECRET_SETTINGS:
        return ", ".join(f"{token.split(':', 1)[0]}: •••" for token in value)
    if name in URL_SETTINGS:
        return mask_url(value)
    match value:
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items())
        case tuple() | list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _version() -> str:
    try:
        return version("drumbeat")
    except PackageNotFoundError:
        return "unknown"
