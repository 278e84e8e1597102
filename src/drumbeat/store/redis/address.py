"""Parsing of Redis URLs."""

from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

# This package is imported only when a Redis store is opened.
from redis import asyncio as driver  # noqa: TID253

from drumbeat.errors import ConfigError
from drumbeat.store.redis.connection import DriverConnection

CONNECT_TIMEOUT = 4.3
"""Seconds; less than pool.CALL_TIMEOUT."""
_READ_BUFFER_BYTES = 1 << 18
_DRIVER_OPTIONS = frozenset(
    {
        *("db", "client_name", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path", "ssl_password"),
        *("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
    }
)
_OWN_OPTIONS = {"cluster": {"true", "false"}, "eviction": {"accepted", "refused"}}

Node = tuple[str, int]


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is and how to connect to it."""

    options: dict[str, Any]
    """Arguments of the driver's connection."""
    display_url: str
    """Without a password."""
    cluster: bool = False
    """Require a cluster. A cluster is detected in any case."""
    eviction_accepted: bool = False
    """The operator accepts a server that evicts keys."""

    def new_connection(self, node: Node | None) -> DriverConnection:
        """Return an unopened connection, to `node` if given instead of the URL's."""
        options = dict(self.options)
        kind = options.pop("connection_class", driver.Connection)
        if node is not None:
            options["host"], options["port"] = node
        return cast(DriverConnection, kind(**options))


def parse_address(url: str, display_url: str) -> RedisAddress:
    """Parse a URL. `cluster=true` and `eviction=accepted` are ours, the other options are the driver's.

    Raises:
        ConfigError: an unknown option or a malformed URL; the message lists what is allowed.
    """
    base, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    own_options = {name: value for name, value in given if name in _OWN_OPTIONS}
    for name, value in own_options.items():
        if value not in _OWN_OPTIONS[name]:
            raise ConfigError(f"{display_url}: {name}= may be {' or '.join(sorted(_OWN_OPTIONS[name]))}", "url")
    if unknown := sorted({name for name, _ in given} - _DRIVER_OPTIONS - _OWN_OPTIONS.keys()):
        known = ", ".join(sorted(_DRIVER_OPTIONS | _OWN_OPTIONS.keys()))
        raise ConfigError(f"{display_url}: there is no option {unknown[0]!r}: use {known}", "url")
    rest = urlencode([(name, value) for name, value in given if name not in _OWN_OPTIONS])
    scheme, _, place = base.partition("://")
    _check_database(scheme, base, display_url)
    scheme = scheme.replace("valkey", "redis")
    try:
        options = dict(driver.connection.parse_url(f"{scheme}://{place}?{rest}" if rest else f"{scheme}://{place}"))
    except ValueError as error:
        raise ConfigError(f"{display_url}: {error}", "url") from error
    options = {"client_name": "drumbeat"} | options
    # Timeouts are ours: the driver would create a task for each write.
    options |= {
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_read_size": _READ_BUFFER_BYTES,
        "protocol": 2,
    }
    return RedisAddress(
        options=options,
        display_url=display_url,
        cluster=own_options.get("cluster") == "true",
        eviction_accepted=own_options.get("eviction") == "accepted",
    )


def _check_database(scheme: str, base: str, display_url: str) -> None:
    try:
        parts = urlsplit(base)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{display_url}: {error}", "url") from error
    if scheme == "unix":
        if not parts.path.strip("/") or parts.hostname:
            raise ConfigError(f"{display_url} names no socket: use unix:///folder/redis.sock, with ?db=1", "url")
    elif parts.path.strip("/") and not parts.path.strip("/").isdigit():
        raise ConfigError(f"{display_url}: a database of Redis is a number, as in redis://host:6379/0", "url")
