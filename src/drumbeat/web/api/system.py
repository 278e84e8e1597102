"""`/api/v1/system`: facts of the store, settings with where they come from, and what is wrong."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from drumbeat.model.finding import Finding, Level
from drumbeat.nouns.doctor import worst
from drumbeat.redaction import mask_url, mask_urls
from drumbeat.settings import NAMES, Settings
from drumbeat.web.call import Call

SECRET = frozenset({"dashboard_tokens"})
URLS = frozenset({"url", "coordination", "outbox"})


class SettingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the process that serves this."""

    name: str
    value: str
    """As text; passwords and tokens are hidden."""
    origin: str
    """Where it comes from: a flag, code, environment, .env or default."""


class SystemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a person should know of the store, and of the process that serves this."""

    drumbeat: str
    """Its version."""
    python: str
    store: str
    """Its URL, without a password."""
    level: Level
    """Of the worst finding."""
    findings: list[Finding]
    """What the store says of itself, then what was seen on it: what `drumbeat doctor` tells."""
    settings: list[SettingRecord]


async def show(call: Call) -> SystemRecord:
    store = await call.host.store()
    findings = [
        msgspec.structs.replace(each, value=mask_urls(each.value), advice=mask_urls(each.advice))
        for each in await call.host.system.doctor()
    ]
    return SystemRecord(
        drumbeat=_version(),
        python=platform.python_version(),
        store=mask_url(store.url),
        level=worst(findings),
        findings=findings,
        settings=[_setting(call.host.settings, name) for name in NAMES],
    )


def _setting(settings: Settings, name: str) -> SettingRecord:
    return SettingRecord(name=name, value=_shown(name, getattr(settings, name)), origin=settings.origin[name])


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in SECRET:
        return ", ".join(f"{token.split(':', 1)[0]}: •••" for token in value)
    if name in URLS:
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
