"""A parser for the value of each setting, from text or from code.

Each returns the value as `settings.Settings` holds it. A ValueError says what the value must be; the caller adds the setting's
name and origin. Nothing here reads the environment.
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
from .names import check_name
from .retry import Backoff, parse_backoff

DEFAULT_WEIGHT = 3
DEFAULT_WEIGHTS = {"critical": 6, "default": 3, "low": 1}
ROLES = ("both", "worker", "controller")
WEB_ROLES = ("viewer", "operator", "admin")
FOREVER = "forever"
MAX_RETRIES = 1_000_000
MAX_PAYLOAD_LIMIT = 64 * 1024 * 1024
"""The maximum of payload_limit, and the limit for decoding: a job may come from a program with a higher payload_limit."""
_DRIVER = re.compile(r"^(postgresql|postgres|sqlite)\+[a-z0-9_]+(?=://)", re.IGNORECASE)

MIN_MAX_MEMORY = 16_000_000
"""Less than any Python process takes: it would be recycled for ever."""


def default_weight(queue: str) -> int:
    return DEFAULT_WEIGHTS.get(queue, DEFAULT_WEIGHT)


def parse_text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
        raise ValueError("text of at most 200 printable characters")
    return value


def parse_url(value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ValueError("a URL such as sqlite:///jobs.db")
    text = drop_driver(text)
    scheme, mark, rest = text.partition("://")
    if not mark:
        # The value is not quoted: without its scheme a URL may still hold a password.
        raise ConfigError("this is no URL; write sqlite:///jobs.db for a file")
    if scheme != "sqlite" or not rest.startswith("/") or rest.startswith("//"):
        return text
    path, question, query = rest[1:].partition("?")
    if not path or path.startswith((":", "~")):
        return text
    # The path in a URL is percent-encoded; the current folder is not.
    return f"sqlite:///{quote(str(Path.cwd()))}/{path}{question}{query}"


def drop_driver(url: str) -> str:
    """The URL without the driver that SQLAlchemy's URLs name: postgresql+asyncpg://host/db, sqlite+aiosqlite:///jobs.db."""
    return _DRIVER.sub(r"\1", url, count=1)


def parse_outbox(value: object) -> str | None:
    return parse_url(value) if value else None  # the outbox's own app has none, whatever the environment says


def parse_module_names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ValueError("names of modules")
    names = tuple(part.strip() for part in parts if isinstance(part, str) and part.strip())
    if not all(piece.isidentifier() for name in names for piece in name.split(".")):
        raise ValueError("names of modules, such as shop.tasks,shop.mail")
    return names


def parse_queues(value: object) -> dict[str, int]:
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
        queues[name] = default_weight(name) if weight is None else int_between(1, 1000)(weight)
    return queues


def parse_bool(value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    answer = value if isinstance(value, bool) else words.get(str(value).strip().lower())
    if answer is None:
        raise ValueError("true or false")
    return answer


def int_between(minimum: int, maximum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not text.isdecimal() or not minimum <= int(text) <= maximum:
            raise ValueError(f"a whole number from {minimum} to {maximum}")
        return int(text)

    return parse


def duration_at_least(minimum: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        length = seconds(value, name="it")  # type: ignore[arg-type]
        if length < minimum:
            raise ValueError(f"at least {minimum:g} s")
        return length

    return parse


def parse_backoff_setting(value: object) -> Backoff:
    """A Backoff, a list of delays, or either as text; a mapping of its fields comes from another process."""
    if isinstance(value, str) and "=" in value:
        value = {name.strip(): text.strip() for name, _, text in (part.partition("=") for part in split_list(value))}
    elif isinstance(value, str):
        value = split_list(value)
    if not isinstance(value, Mapping):
        return parse_backoff(value)
    if value.get("delays"):
        return Backoff(delays=value["delays"])
    if not {"base", "cap"} >= value.keys() - {"delays"}:
        raise ValueError("delays such as 1s,5s,30s, or base=1s,cap=30s")
    return Backoff(**{name: each for name, each in value.items() if name != "delays"})


def parse_drain(value: object) -> float | None:
    return None if value == FOREVER else duration_at_least(0)(value)


def parse_address(value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535 or "/" in host or not host.isprintable():
        raise ValueError("HOST:PORT, such as 127.0.0.1:7777 or [::1]:7777")
    return f"{host}:{int(port)}"


def parse_health(value: object) -> str | None:
    """HOST:PORT, or the absolute path of a file."""
    if not value:
        return None
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, str) and text.isprintable() and "/" in text and not text.endswith("/"):
        return str(Path(text).absolute())
    try:
        return parse_address(text)
    except ValueError:
        raise ValueError(
            "HOST:PORT, such as 127.0.0.1:8080, or the path of a file, such as /run/drumbeat/health"
        ) from None


_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def parse_size(value: object) -> int | None:
    """Bytes. MB is a million, MiB 1,048,576."""
    if not value:
        return None
    match = _SIZE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if match is None:
        raise ValueError("a size such as 512MB or 2GiB")
    number, unit, binary = match.groups()
    factor: int = (1_024 if binary else 1_000) ** (" KMGT".index(unit.upper()) if unit else 0)
    if int(number) * factor < MIN_MAX_MEMORY:
        raise ValueError("a size such as 512MB or 2GiB, at least 16MB")
    return int(number) * factor


def parse_limit(value: object) -> int | None:
    """A whole number; 0 or nothing: no limit."""
    return int_between(0, 1_000_000_000)(value) or None


def parse_tokens(value: object) -> tuple[str, ...]:
    """`name:role:sha256:hash` of each. Errors do not quote the value: it may be a secret."""
    return tuple(dict.fromkeys(parse_token(part) for part in split_list(value)))


def parse_token(part: str) -> str:
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


def parse_networks(value: object) -> tuple[str, ...]:
    from ipaddress import ip_network

    try:
        return tuple(
            str(ip_network(part, strict=False)).removesuffix("/32").removesuffix("/128") for part in split_list(value)
        )
    except ValueError:
        raise ValueError("addresses or networks, such as 10.0.0.0/8") from None


def parse_hosts(value: object) -> tuple[str, ...]:
    hosts = tuple(part.lower() for part in split_list(value))
    if not all(re.fullmatch(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*", host) for host in hosts):
        raise ValueError("names of hosts without port, such as jobs.example.com,.internal")
    return hosts


def parse_header(value: object) -> str | None:
    if value and not re.fullmatch(r"[A-Za-z0-9-]{1,100}", str(value)):
        raise ValueError("the name of a header, such as X-Forwarded-User")
    return str(value) if value else None


def parse_role_or_header(value: object) -> str:
    # "Admin" is the role, not a header that callers could send.
    return str(value).lower() if str(value).lower() in WEB_ROLES else parse_header(value) or "viewer"


def split_list(value: object) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ConfigError("it must be text with commas between the parts, or a list of texts")
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError(" or ".join(words))
        return value.lower()

    return parse
