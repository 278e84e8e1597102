"""Everything that can be set, in one frozen record, resolved in one place.

Programs and the command line use the same resolver: flags > code > `DRUMBEAT_*` > `.env` > defaults. Each value
remembers where it came from, so that a refusal can name it. The environment is read here and nowhere else, at the first
use of the settings and never at import. Lengths of time are seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from . import dotenv, setting_parsers
from .durations import Duration
from .errors import ConfigError
from .names import is_utf8, short_repr

PREFIX = "DRUMBEAT_"
DEFAULT_URL = "sqlite:///drumbeat.db"
FOREVER = setting_parsers.FOREVER
MAX_PAYLOAD_LIMIT = setting_parsers.MAX_PAYLOAD_LIMIT


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a program, a worker or a command goes by."""

    url: str = DEFAULT_URL
    """Where the jobs are. A relative path of a SQLite file is made absolute when the settings are resolved.

    Default: sqlite:///drumbeat.db, in the current folder.
    """

    coordination: str | None = None
    """A second store for locks, rooms and wake-ups. None: they are where the jobs are.

    Default: None.
    """

    outbox: str | None = None
    """A SQL database of your own, in which `using(conn=...)` leaves jobs for the store in `url`, so that jobs on Redis commit
    with your data. Workers carry them over.

    Default: None.
    """

    namespace: str = "drumbeat"
    """What stands before every table or key, so that several systems may share a database.

    Default: drumbeat.
    """

    app: str | None = None
    """`module:attr` of the program's Drumbeat object; needed by commands that run or name its tasks.

    Default: None.
    """

    name: str = "app"
    """What this program is called where instances are listed.

    Default: app.
    """

    version: str = ""
    """The program's own version, as people see it at its instances.

    Default: empty.
    """

    imports: tuple[str, ...] = ()
    """Modules that a worker imports besides the app's own, because they register tasks.

    Default: none.
    """

    queues: dict[str, int] = {}
    """The queues that a worker takes, these and no others, with their weights, as `critical=6,default=3`; a name alone has
    its default weight (critical 6, low 1, others 3).

    Default: none; a worker then takes every queue that its tasks name.
    """

    strict: bool = False
    """Take queues strictly in the order of their weights: a lower one only when the higher ones are empty.

    Default: false; queues then share by weight and none starves.
    """

    role: Literal["both", "worker", "controller"] = "both"
    """What an instance does: run jobs (worker), look after the cluster (controller), or both.

    Default: both.
    """

    concurrency: int = 10
    """How many jobs one process runs at the same time.

    Default: 10.
    """

    batch: int = 500
    """How many jobs are claimed or finished in one step at most: small for fairness, large for bursts.

    Default: 500.
    """

    processes: int = 1
    """How many worker processes a supervisor keeps. 1: the work is done in the process itself.

    Default: 1.
    """

    drain: float | None = 25.0
    """How long running jobs may go on after SIGTERM before they are released. None ("forever"): until all have ended.

    Default: 25 seconds.
    """

    heartbeat: float = 1.0
    """The pause between the end of one heartbeat and the start of the next.

    Default: 1 second.
    """

    dead_after: float = 10.0
    """For how long a heart must stand still, under the eyes of an observer that was alive, to be dead.

    Default: 10 seconds.
    """

    poll: float = 2.0
    """How long a fetcher sleeps when nothing wakes it. Wake-ups normally arrive first; this is the fallback.

    Default: 2 seconds: with the heartbeat an idle worker sends less than 2 statements a second.
    """

    leader_lease: float = 5.0
    """For how long a leader is believed to lead after its last heartbeat, which renews it; at least three heartbeats, and at
    most `dead_after` less two.

    Default: 5 seconds.
    """

    max_failed_beats: int = 30
    """After so many failed heartbeats in a row, and with nothing running, `drumbeat run` exits with code 75.

    Default: 30.
    """

    lock_lease: float = 15.0
    """A lock whose process is silent for so long belongs to the next in line. `app.lock(lease=...)` overrules it.

    Default: 15 seconds.
    """

    lock_renew: float = 5.0
    """The pause between two renewals of all locks of a process. At most a third of the lease.

    Default: 5 seconds.
    """

    retention: float = 7 * 86_400.0
    """How long the history of finished jobs is kept. Dead letters are kept until somebody decides.

    Default: 7 days.
    """

    audit_retention: float = 90 * 86_400.0
    """How long the record of what people did is kept.

    Default: 90 days.
    """

    crash_limit: int = 3
    """So many crashes of a worker process blamed on one job make it a dead letter.

    Default: 3.
    """

    payload_limit: int = 256 * 1024
    """The most bytes that the arguments of one job may have, as JSON; the same for its result.

    Default: 256 KiB.
    """

    wait_for_version: float = 86_400.0
    """How long a job whose arguments this version cannot read waits for a worker that can.

    Default: 24 hours.
    """

    log_level: str = "info"
    """What `drumbeat` commands log: debug, info, warning, error. The library itself never configures logging.

    Default: info.
    """

    log_format: Literal["text", "json"] = "text"
    """How `drumbeat` commands log: lines for people, or one JSON object a line.

    Default: text.
    """

    dashboard: str = "127.0.0.1:7777"
    """HOST:PORT that `drumbeat dashboard` listens on. Another host than loopback needs tokens or a proxy.

    Default: 127.0.0.1:7777.
    """

    dashboard_tokens: tuple[str, ...] = ()
    """Who may use the dashboard and its API, as `name:role:token,...`; the roles are viewer, operator and admin. Instead of a
    token, `sha256:` and its hash. Only hashes are kept here.

    Default: none; then only this machine may, without a login.
    """

    dashboard_proxy: str | None = None
    """The header in which a proxy in front says who calls, such as X-Forwarded-User.

    Default: None; no header is believed.
    """

    dashboard_proxy_role: str = "viewer"
    """The role of those that the proxy names: viewer, operator or admin, or the header in which the proxy says it.

    Default: viewer.
    """

    dashboard_proxy_from: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses or networks from which that header is believed.

    Default: 127.0.0.1 and ::1.
    """

    dashboard_hosts: tuple[str, ...] = ()
    """Names besides localhost by which browsers may call the dashboard, such as jobs.example.com; .example.com for all below.

    Default: none; addresses are always allowed.
    """

    origin: dict[str, str] = {}
    """Where each value came from: `settings.origin["url"] == "environment DRUMBEAT_URL"`."""

    declared_queues: frozenset[str] = frozenset()
    """Queues that flags, code, environment or `.env` name: a worker that takes only some of them may enqueue to all."""

    def queue_weights(self, named: Iterable[str] = ()) -> dict[str, int]:
        """The weight of every queue to take: those of `queues`, and if there are none, those that tasks name."""
        return self.queues or {queue: setting_parsers.default_weight(queue) for queue in sorted(named)}


class SettingsOptions(TypedDict, total=False):
    """Settings that are rarely written in code; `Settings` says what each of them is."""

    queues: str | Mapping[str, int] | Iterable[str]
    strict: bool
    role: Literal["both", "worker", "controller"]
    concurrency: int
    batch: int
    processes: int
    drain: Duration | Literal["forever"]
    heartbeat: Duration
    dead_after: Duration
    lock_lease: Duration
    lock_renew: Duration
    poll: Duration
    leader_lease: Duration
    max_failed_beats: int
    retention: Duration
    audit_retention: Duration
    crash_limit: int
    payload_limit: int
    wait_for_version: Duration
    log_level: str
    log_format: Literal["text", "json"]
    outbox: str
    dashboard: str
    dashboard_tokens: str | Iterable[str]
    dashboard_proxy: str
    dashboard_proxy_role: str
    dashboard_proxy_from: str | Iterable[str]
    dashboard_hosts: str | Iterable[str]


STORE_SETTINGS = ("url", "coordination", "namespace", "outbox")
"""Settings that say where jobs are."""
DERIVED = ("origin", "declared_queues")
NAMES = tuple(field.name for field in msgspec.structs.fields(Settings) if field.name not in DERIVED)


def load(flags: Mapping[str, object], code: Mapping[str, object]) -> Settings:
    """The settings of this process: its environment, and `.env` in its current folder."""
    return resolve(flags, code, os.environ, dotenv.read(Path(".env")))


def resolve(
    flags: Mapping[str, object], code: Mapping[str, object], environ: Mapping[str, str], env_file: Mapping[str, str]
) -> Settings:
    """The first of flags, code, environment, `.env` and default that has a value; None is no value.

    Raises:
        ConfigError: an unknown setting, or a value that is not acceptable; it names the setting and where it came from.
    """
    check_setting_names(flags)
    check_setting_names(code)
    layers: tuple[tuple[Mapping[str, object], str, str], ...] = (
        (flags, "", "flag --{flag}"),
        (code, "", "Drumbeat({name}=)"),
        (environ, PREFIX, "environment {key}"),
        (env_file, PREFIX, ".env {key}"),
    )
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name in NAMES:
        for layer, prefix, where in layers:
            key = prefix + name.upper() if prefix else name
            # An empty variable is how a shell or a compose file says "not set".
            if (value := layer.get(key)) is None or (prefix and value == ""):
                continue
            origin[name] = where.format(name=name, key=key, flag=name.replace("_", "-"))
            values[name] = _parse_setting(name, value, origin[name])
            break
        else:
            origin[name] = "default"
    values.setdefault("url", setting_parsers.parse_url(DEFAULT_URL))
    declared = (
        _read_declared_queues(layer.get(prefix + "QUEUES" if prefix else "queues")) for layer, prefix, _ in layers
    )
    settings = Settings(**values, origin=origin, declared_queues=frozenset(chain.from_iterable(declared)))
    _check_consistency(settings)
    return settings


def check_setting_names(given: Mapping[str, object]) -> None:
    """Refuse a name that is no setting; called before anything is resolved, so that a slip shows at once."""
    for name in given:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no setting {name!r}{hint}", name)


def _parse_setting(name: str, value: object, origin: str) -> object:
    if isinstance(value, str) and not is_utf8(value):
        raise ConfigError(f"setting {name} ({origin}) is not UTF-8: write it in UTF-8", name)
    try:
        return setting_parsers.PARSERS[name](value)
    except ConfigError as error:
        raise ConfigError(f"setting {name} ({origin}): {error}", name) from error
    except ValueError as error:
        raise ConfigError(f"setting {name} ({origin}) must be {error}, not {short_repr(value)}", name) from error


def _read_declared_queues(queues: object) -> Iterable[str]:
    """Of a layer that may have been overruled: what is wrong there is told by whoever goes by it."""
    try:
        return setting_parsers.parse_queues(queues) if queues else ()
    except (ConfigError, ValueError):
        return ()


def _check_consistency(settings: Settings) -> None:
    if settings.dead_after < 3 * settings.heartbeat:
        raise ConfigError(
            f"setting dead_after ({settings.origin['dead_after']}) must be at least three heartbeats, "
            f"but {settings.dead_after:g} s is less than 3 * {settings.heartbeat:g} s",
            "dead_after",
        )
    if settings.lock_lease < 3 * settings.lock_renew:
        raise ConfigError(
            f"setting lock_lease ({settings.origin['lock_lease']}) must be at least three times lock_renew, "
            f"but {settings.lock_lease:g} s is less than 3 * {settings.lock_renew:g} s",
            "lock_lease",
        )
