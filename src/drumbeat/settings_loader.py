"""The one resolver of settings: flags > code > `DRUMBEAT_*` > `.env` > defaults.

Each value remembers where it came from, so that errors can name it. The environment is read here and nowhere else, at the first
use of the settings and never at import.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from . import dotenv, setting_parsers
from .errors import ConfigError
from .names import is_utf8, short_repr
from .settings import DEFAULT_URL, NAMES, PARSERS, PREFIX, Settings

CODE_ORIGIN = "Drumbeat({name}=)"


def load(flags: Mapping[str, object], code: Mapping[str, object], *, code_origin: str = CODE_ORIGIN) -> Settings:
    """The settings of this process: its environment, and `.env` in its current folder.

    `code_origin`: how messages name a setting of `code`.
    """
    return resolve(flags, code, os.environ, dotenv.read(Path(".env")), code_origin=code_origin)


def resolve(
    flags: Mapping[str, object],
    code: Mapping[str, object],
    environ: Mapping[str, str],
    env_file: Mapping[str, str],
    *,
    code_origin: str = CODE_ORIGIN,
) -> Settings:
    """For each setting the first of flags, code, environment, `.env` and default that has a value; None is no value.

    Raises:
        ConfigError: an unknown setting, or a value that is not acceptable; the message names the setting and its origin.
    """
    check_setting_names(flags)
    check_setting_names(code)
    layers: tuple[tuple[Mapping[str, object], str, str], ...] = (
        (flags, "", "flag --{flag}"),
        (code, "", code_origin),
        (environ, PREFIX, "environment {key}"),
        (env_file, PREFIX, ".env {key}"),
    )
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name in NAMES:
        for layer, prefix, template in layers:
            key = prefix + name.upper() if prefix else name
            # A shell or a compose file writes "not set" as an empty variable.
            if (value := layer.get(key)) is None or (prefix and value == ""):
                continue
            origin[name] = template.format(name=name, key=key, flag=name.replace("_", "-"))
            values[name] = _parse_setting(name, value, origin[name])
            break
        else:
            origin[name] = "default"
    values.setdefault("url", setting_parsers.parse_url(DEFAULT_URL))
    declared = (
        _read_declared_queues(layer.get(prefix + "QUEUES" if prefix else "queues")) for layer, prefix, _ in layers
    )
    settings = Settings(**values, origin=origin, declared_queues=frozenset(chain.from_iterable(declared)))
    _check_three_times("dead_after", settings.dead_after, "heartbeat", settings.heartbeat, settings)
    _check_three_times("lock_lease", settings.lock_lease, "lock_renew", settings.lock_renew, settings)
    if settings.burst and settings.role == "controller":
        raise ConfigError(f"setting burst ({origin['burst']}) needs a worker: a controller runs no jobs", "burst")
    return settings


def check_setting_names(given: Mapping[str, object]) -> None:
    """Refuse a name that is no setting; called before anything is resolved, so that a typing error shows at once."""
    for name in given:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no setting {name!r}{hint}", name)


def _parse_setting(name: str, value: object, origin: str) -> object:
    if isinstance(value, str) and not is_utf8(value):
        raise ConfigError(f"setting {name} ({origin}) is not UTF-8: write it in UTF-8", name)
    try:
        return PARSERS[name](value)
    except ConfigError as error:
        raise ConfigError(f"setting {name} ({origin}): {error}", name) from error
    except ValueError as error:
        raise ConfigError(f"setting {name} ({origin}) must be {error}, not {short_repr(value)}", name) from error


def _read_declared_queues(queues: object) -> Iterable[str]:
    """The queues of one layer, which another may override; its errors are reported when it is used."""
    try:
        return setting_parsers.parse_queues(queues) if queues else ()
    except (ConfigError, ValueError):
        return ()


def _check_three_times(name: str, value: float, interval_name: str, interval: float, settings: Settings) -> None:
    if value < 3 * interval:
        raise ConfigError(
            f"setting {name} ({settings.origin[name]}) must be at least three times {interval_name}, "
            f"but {value:g} s is less than 3 * {interval:g} s",
            name,
        )
