"""How the value of each setting is read, from text or from code: what it may be, and what is said where it is not.

Each reader gives the value as `settings.Settings` holds it. A ValueError says what it must be; the caller adds which setting it
is and where it came from. Nothing here reads the environment.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .durations import seconds
from .errors import ConfigError
from .names import check_name, check_namespace

DEFAULT_WEIGHT = 3
DEFAULT_WEIGHTS = {"critical": 6, "default": 3, "low": 1}
ROLES = ("both", "worker", "controller")
WEB_ROLES = ("viewer", "operator", "admin")
FOREVER = "forever"
MOST_PAYLOAD = 64 * 1024 * 1024
"""The highest payload_limit. Whoever reads goes by this one: a job may come from a program with a higher limit."""


def default_weight(queue: str) -> int:
    return DEFAULT_WEIGHTS.get(queue, DEFAULT_WEIGHT)


def text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
        raise ValueError("text of at most 200 printable characters")
    return value


def url(value: object) -> str:
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


def outbox(value: object) -> str | None:
    return url(value) if value else None  # the outbox's own app has none, whatever the environment says


def names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError("names of modules")
    names = tuple(part.strip() for part in parts if isinstance(part, str) and part.strip())
    if not all(piece.isidentifier() for name in names for piece in name.split(".")):
        raise ValueError("names of modules, such as shop.tasks,shop.mail")
    return names


def queues(value: object) -> dict[str, int]:
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
        queues[name] = default_weight(name) if weight is None else whole(1, 1000)(weight)
    return queues


def flag(value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    answer = value if isinstance(value, bool) else words.get(str(value).strip().lower())
    if answer is None:
        raise ValueError("true or false")
    return answer


def whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def length(least: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        length = seconds(value, name="it")  # type: ignore[arg-type]
        if length < least:
            raise ValueError(f"at least {least:g} s")
        return length

    return read


def drain(value: object) -> float | None:
    return None if value == FOREVER else length(0)(value)


def address(value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535 or "/" in host or not host.isprintable():
        raise ValueError("HOST:PORT, such as 127.0.0.1:7777 or [::1]:7777")
    return f"{host}:{int(port)}"


def tokens(value: object) -> tuple[str, ...]:
    """`name:role:sha256:hash` of each. What is refused is not repeated: it may be a secret."""
    return tuple(dict.fromkeys(token(part) for part in parts(value)))


def token(part: str) -> str:
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


def networks(value: object) -> tuple[str, ...]:
    from ipaddress import ip_network

    try:
        return tuple(
            str(ip_network(part, strict=False)).removesuffix("/32").removesuffix("/128") for part in parts(value)
        )
    except ValueError:
        raise ValueError("addresses or networks, such as 10.0.0.0/8") from None


def hosts(value: object) -> tuple[str, ...]:
    hosts = tuple(part.lower() for part in parts(value))
    if not all(re.fullmatch(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*", host) for host in hosts):
        raise ValueError("names of hosts without port, such as jobs.example.com,.internal")
    return hosts


def header(value: object) -> str | None:
    if value and not re.fullmatch(r"[A-Za-z0-9-]{1,100}", str(value)):
        raise ValueError("the name of a header, such as X-Forwarded-User")
    return str(value) if value else None


def role_or_header(value: object) -> str:
    # Admin is the role, too, and not a header that callers could send.
    return str(value).lower() if str(value).lower() in WEB_ROLES else header(value) or "viewer"


def parts(value: object) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ConfigError("it must be text with commas between the parts, or a list of texts")
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError(" or ".join(words))
        return value.lower()

    return read


READERS: dict[str, Callable[[object], object]] = {
    "url": url,
    "coordination": url,
    "outbox": outbox,
    "namespace": lambda value: check_namespace(value),
    "app": text,
    "name": text,
    "version": text,
    "imports": names,
    "queues": queues,
    "strict": flag,
    "role": one_of(*ROLES),
    "concurrency": whole(1, 10_000),
    "batch": whole(1, 10_000),
    "processes": whole(1, 1_000),
    "drain": drain,
    "heartbeat": length(0.05),
    "dead_after": length(0.5),
    "poll": length(0.01),
    "leader_lease": length(0.5),
    "max_failed_beats": whole(1, 1_000_000),
    "lock_lease": length(0.3),
    "lock_renew": length(0.1),
    "retention": length(0),
    "audit_retention": length(0),
    "crash_limit": whole(1, 1_000),
    "payload_limit": whole(1_024, MOST_PAYLOAD),
    "wait_for_version": length(0),
    "dashboard": address,
    "dashboard_tokens": tokens,
    "dashboard_proxy": header,
    "dashboard_proxy_role": role_or_header,
    "dashboard_proxy_from": networks,
    "dashboard_hosts": hosts,
    "log_level": one_of("debug", "info", "warning", "error"),
    "log_format": one_of("text", "json"),
}
