"""Everything that can be set, in one frozen record, resolved in one place.

Programs and the command line use the same resolver: flags > code > `DRUMBEAT_*` > `.env` > defaults. Each value
remembers where it came from, so that a refusal can name it. The environment is read here and nowhere else, at the first
use of the settings and never at import. Lengths of time are seconds.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from . import dotenv
from .durations import seconds
from .errors import ConfigError
from .names import check_name, check_namespace, shown

PREFIX = "DRUMBEAT_"
DEFAULT_URL = "sqlite:///drumbeat.db"
DEFAULT_WEIGHT = 3
DEFAULT_WEIGHTS = {"critical": 6, "default": 3, "low": 1}
ROLES = ("both", "worker", "controller")
WEB_ROLES = ("viewer", "operator", "admin")
FOREVER = "forever"
MOST_PAYLOAD = 64 * 1024 * 1024
"""The highest payload_limit. Whoever reads goes by this one: a job may come from a program with a higher limit."""


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
    """Queues with their weights, as `critical=6,default=3`; a name alone has its default weight (critical 6, low 1, others
    3). A worker takes these and every queue that its tasks name.

    Default: none.
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

    leader_lease: float = 10.0
    """For how long a leader is believed to lead after its last heartbeat, which renews it; three heartbeats if that is longer.

    Default: 10 seconds.
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

    def weights(self, named: Iterable[str] = ()) -> dict[str, int]:
        """The weight of every queue to take: those of `queues`, and those that tasks name."""
        weights = {queue: default_weight(queue) for queue in sorted(named)}
        return weights | self.queues


def default_weight(queue: str) -> int:
    return DEFAULT_WEIGHTS.get(queue, DEFAULT_WEIGHT)


NAMES = tuple(field.name for field in msgspec.structs.fields(Settings) if field.name != "origin")


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
    check_known(flags)
    check_known(code)
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
            values[name] = _read(name, value, origin[name])
            break
        else:
            origin[name] = "default"
    values.setdefault("url", _url(DEFAULT_URL))
    settings = Settings(**values, origin=origin)
    _check_together(settings)
    return settings


def check_known(given: Mapping[str, object]) -> None:
    """Refuse a name that is no setting; called before anything is resolved, so that a slip shows at once."""
    for name in given:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"there is no setting {name!r}{hint}", name)


def _read(name: str, value: object, origin: str) -> object:
    try:
        return _READERS[name](value)
    except ConfigError as error:
        raise ConfigError(f"setting {name} ({origin}): {error}", name) from error
    except ValueError as error:
        raise ConfigError(f"setting {name} ({origin}) must be {error}, not {shown(value)}", name) from error


def _check_together(settings: Settings) -> None:
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


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
        raise ValueError("text of at most 200 printable characters")
    return value


def _url(value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ValueError("a URL such as sqlite:///jobs.db")
    scheme, mark, rest = text.partition("://")
    if not mark:
        # Without its scheme a URL may still hold a password: it is not repeated.
        raise ConfigError("this is no URL; write sqlite:///jobs.db for a file")
    if scheme != "sqlite" or not rest.startswith("/") or rest.startswith("//"):
        return text
    path, question, query = rest[1:].partition("?")
    if not path or path.startswith((":", "~")):
        return text
    # The path stands percent-encoded in a URL; the current folder does not.
    return f"sqlite:///{quote(str(Path.cwd()))}/{path}{question}{query}"


def _outbox(value: object) -> str | None:
    return _url(value) if value else None  # the outbox's own app has none, whatever the environment says


def _names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError("names of modules")
    names = tuple(part.strip() for part in parts if isinstance(part, str) and part.strip())
    if not all(piece.isidentifier() for name in names for piece in name.split(".")):
        raise ValueError("names of modules, such as shop.tasks,shop.mail")
    return names


def _queues(value: object) -> dict[str, int]:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        items: Iterable[tuple[Any, Any]] = [
            (name.strip(), weight.strip() if mark else None) for name, mark, weight in pairs
        ]
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, Iterable):
        items = [(name, None) for name in value]
    else:
        raise ValueError("queues with weights, such as critical=6,default=3")
    queues: dict[str, int] = {}
    for name, weight in items:
        check_name("queue", name, ConfigError)
        queues[name] = default_weight(name) if weight is None else _whole(1, 1000)(weight)
    return queues


def _flag(value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    answer = value if isinstance(value, bool) else words.get(str(value).strip().lower())
    if answer is None:
        raise ValueError("true or false")
    return answer


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _length(least: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        length = seconds(value, name="it")  # type: ignore[arg-type]
        if length < least:
            raise ValueError(f"at least {least:g} s")
        return length

    return read


def _drain(value: object) -> float | None:
    return None if value == FOREVER else _length(0)(value)


def _address(value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535 or "/" in host or not host.isprintable():
        raise ValueError("HOST:PORT, such as 127.0.0.1:7777 or [::1]:7777")
    return f"{host}:{int(port)}"


def _tokens(value: object) -> tuple[str, ...]:
    """`name:role:sha256:hash` of each. What is refused is not repeated: it may be a secret."""
    return tuple(dict.fromkeys(_token(part) for part in _parts(value)))


def _token(part: str) -> str:
    name, _, rest = part.partition(":")
    role, _, token = rest.partition(":")
    if not name.isprintable() or not name or role not in WEB_ROLES or not token:
        raise ConfigError("each token is written name:role:token, and a role is viewer, operator or admin")
    kind, colon, digest = token.partition(":")
    if colon and kind == "sha256":
        if len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
            raise ConfigError(f"the hash of {name}'s token is not 64 hexadecimal digits")
        return f"{name}:{role}:sha256:{digest.lower()}"
    if len(token) < 16:
        raise ConfigError(f"the token of {name} is shorter than 16 characters: make one with `openssl rand -hex 16`")
    return f"{name}:{role}:sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def _networks(value: object) -> tuple[str, ...]:
    from ipaddress import ip_network

    try:
        return tuple(
            str(ip_network(part, strict=False)).removesuffix("/32").removesuffix("/128") for part in _parts(value)
        )
    except ValueError:
        raise ValueError("addresses or networks, such as 10.0.0.0/8") from None


def _hosts(value: object) -> tuple[str, ...]:
    hosts = tuple(part.lower() for part in _parts(value))
    if not all(re.fullmatch(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*", host) for host in hosts):
        raise ValueError("names of hosts without port, such as jobs.example.com,.internal")
    return hosts


def _header(value: object) -> str | None:
    if value and not re.fullmatch(r"[A-Za-z0-9-]{1,100}", str(value)):
        raise ValueError("the name of a header, such as X-Forwarded-User")
    return str(value) if value else None


def _parts(value: object) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ConfigError("it must be text with commas between the parts, or a list of texts")
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError(" or ".join(words))
        return value.lower()

    return read


_READERS: dict[str, Callable[[object], object]] = {
    "url": _url,
    "coordination": _url,
    "outbox": _outbox,
    "namespace": lambda value: check_namespace(value),
    "app": _text,
    "name": _text,
    "version": _text,
    "imports": _names,
    "queues": _queues,
    "strict": _flag,
    "role": _one_of(*ROLES),
    "concurrency": _whole(1, 10_000),
    "batch": _whole(1, 10_000),
    "processes": _whole(1, 1_000),
    "drain": _drain,
    "heartbeat": _length(0.05),
    "dead_after": _length(0.5),
    "poll": _length(0.01),
    "leader_lease": _length(0.5),
    "max_failed_beats": _whole(1, 1_000_000),
    "lock_lease": _length(0.3),
    "lock_renew": _length(0.1),
    "retention": _length(0),
    "audit_retention": _length(0),
    "crash_limit": _whole(1, 1_000),
    "payload_limit": _whole(1_024, MOST_PAYLOAD),
    "wait_for_version": _length(0),
    "dashboard": _address,
    "dashboard_tokens": _tokens,
    "dashboard_proxy": _header,
    "dashboard_proxy_role": lambda value: _header(value) or "viewer",
    "dashboard_proxy_from": _networks,
    "dashboard_hosts": _hosts,
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of("text", "json"),
}
