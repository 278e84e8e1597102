"""Authentication and authorization of requests.

    Host header known? -> caller: bearer token | session of a login | proxy header | this machine -> role enough? -> origin

An application that mounts the dashboard identifies callers by its own function, by tokens or by a proxy. Only with
access="open", and with neither tokens nor a proxy, are local requests admin without a login: from a loopback address, to a
loopback listener, without any sign of a proxy. `drumbeat dashboard` is open on loopback. Tokens are stored as hashes, and a
login gives the browser a random session.
"""

from __future__ import annotations

import hashlib
import inspect
import ipaddress
import math
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from drumbeat.clock import Clock
from drumbeat.errors import ConfigError
from drumbeat.settings import Settings
from drumbeat.web.login_throttle import LoginThrottle
from drumbeat.web.problem import Problem
from drumbeat.web.route import AccessRole, Caller

Scope = Mapping[str, Any]
Access = Callable[[Scope], Caller | Awaitable[Caller | None] | None]
OPEN: Literal["open"] = "open"

ROLE_RANKS = {role: rank for rank, role in enumerate(AccessRole)}
COOKIE = "drumbeat_session"
SESSION_SECONDS = 12 * 3600.0
MAX_SESSIONS = 10_000
_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_])?\.?))(?::[0-9]{0,5})?"
)
LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})
# Set by proxies: then the peer's address does not identify the client.
PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
)
PROXY_HEADER_PREFIX = "x-forwarded-"


class Sessions:
    """Browser sessions, in memory: a restart of the dashboard ends them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, tuple[Caller, float]] = {}

    def begin(self, caller: Caller) -> str:
        self._sweep()
        if len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        secret = secrets.token_urlsafe(32)
        self._open[_digest(secret)] = (caller, self._clock.monotonic() + SESSION_SECONDS)
        return secret

    def find(self, secret: str) -> Caller | None:
        found = self._open.get(_digest(secret))
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    def end(self, secret: str) -> None:
        self._open.pop(_digest(secret), None)

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        self._open = {key: session for key, session in self._open.items() if session[1] > now}


class AccessControl:
    """Identifies callers by the settings, or by the application's own function."""

    def __init__(self, settings: Settings, clock: Clock, access: Access | Literal["open"] | None = None) -> None:
        self._settings = settings
        self._access = None if isinstance(access, str) else access
        self._is_open = access == OPEN
        tokens = (token.split(":", 3) for token in settings.dashboard_tokens)
        self._tokens = [(digest, Caller(name=name, role=AccessRole(role))) for name, role, _, digest in tokens]
        self._trusted = [ipaddress.ip_network(each) for each in settings.dashboard_proxy_from]
        self._own_name = socket.gethostname().lower()
        self.sessions = Sessions(clock)
        self.throttle = LoginThrottle(clock)

    @property
    def has_login(self) -> bool:
        return self._access is None and bool(self._tokens)

    @property
    def reads_tokens(self) -> bool:
        """Whether bearer tokens are checked here, not by the application."""
        return self._access is None

    def check_host(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Refuse unknown host names: another site may point its name at this machine (DNS rebinding)."""
        if self._access is not None:
            return  # it relies on what a browser sends only to the application's own host
        host = parse_host(headers.get("host", ""))
        if host in LOOPBACK_NAMES or host == self._own_name or parse_address(host) is not None:
            return
        for allowed in self._settings.dashboard_hosts:
            if host == allowed or (allowed.startswith(".") and host.endswith(allowed)):
                return
        raise Problem(
            421, f"the host {host[:100]!r} is not served here; add it to the setting dashboard_hosts", argument="Host"
        )

    async def identify(self, scope: Scope, headers: Mapping[str, str]) -> Caller | None:
        """The caller; None: unknown. Raises Problem 401 for an invalid token."""
        if self._access is not None:
            found = self._access(scope)
            caller = await found if inspect.isawaitable(found) else found
            # The application may give the role as plain text.
            return None if caller is None else msgspec.structs.replace(caller, role=AccessRole(caller.role))
        if (given := bearer_token(headers)) is not None:
            return self._identify_bearer(scope, given)
        for secret in session_cookies(headers):
            if (caller := self.sessions.find(secret)) is not None:
                return caller
        if self._settings.dashboard_proxy is not None:
            return self._identify_proxy(scope, headers)
        return self._identify_local(scope, headers)

    def _identify_bearer(self, scope: Scope, given: str) -> Caller:
        if (caller := self.check_token(scope, given, via="token")) is None:
            raise Problem(401, "invalid token", headers={"WWW-Authenticate": 'Bearer realm="drumbeat"'})
        return caller

    def check_token(self, scope: Scope, given: str, *, via: str) -> Caller | None:
        """The caller of a token; None: invalid. Raises Problem 429 after too many attempts."""
        address, token = f"address {client_network(str((scope.get('client') or ('', 0))[0])) or '?'}", _digest(given)
        if (wait := self.throttle.retry_after(address, token)) > 0:
            raise Problem(
                429,
                f"too many invalid tokens: try again in {math.ceil(wait)} s",
                type="too-many-attempts",
                headers={"Retry-After": str(math.ceil(wait))},
            )
        caller = self.find_by_token(given, via)
        self.throttle.record(address, token, is_right=caller is not None)
        return caller

    def find_by_token(self, given: str, via: str = "token") -> Caller | None:
        # All are compared, in constant time, so that timing reveals nothing.
        digest = _digest(given)
        found = [caller for known, caller in self._tokens if secrets.compare_digest(known, digest)]
        return msgspec.structs.replace(found[0], via=via) if found else None

    def _identify_proxy(self, scope: Scope, headers: Mapping[str, str]) -> Caller | None:
        peer = str((scope.get("client") or ("", 0))[0])
        # A unix socket has no address: the file system decides who may open it.
        if peer and not self._is_trusted(peer):
            return None
        header = str(self._settings.dashboard_proxy).lower()
        name = headers.get(header, "").strip()
        if not name or not name.isprintable() or len(name) > 200:
            return None
        if sum(each.decode("latin-1").lower() == header for each, _ in scope["headers"]) != 1:
            return None  # the proxy has added its header to one of the caller's
        setting = self._settings.dashboard_proxy_role
        word = setting if setting in list(AccessRole) else headers.get(setting.lower(), "").strip().lower()
        return Caller(name=name, role=AccessRole(word) if word in list(AccessRole) else AccessRole.VIEWER, via="proxy")

    def _is_trusted(self, peer: str) -> bool:
        address = parse_address(peer)
        return address is not None and any(address in network for network in self._trusted)

    def _identify_local(self, scope: Scope, headers: Mapping[str, str]) -> Caller | None:
        if not self._is_open or self._tokens or _is_proxied(scope, headers):
            return None
        peer, server = scope.get("client"), scope.get("server")
        if peer is None or server is None or not is_loopback(str(peer[0])) or not is_loopback(str(server[0])):
            return None
        return Caller(name="local", role=AccessRole.ADMIN, via="local")

    def unauthenticated_problem(self) -> Problem:
        """The response to an unidentified caller."""
        if self._access is not None:
            return Problem(401, "authentication is required by the application")
        if self._tokens:
            return Problem(
                401,
                "send a token: `Authorization: Bearer ...`",
                headers={"WWW-Authenticate": 'Bearer realm="drumbeat"'},
            )
        if self._settings.dashboard_proxy is not None:
            return Problem(401, "no user header from a trusted proxy")
        return Problem(
            403,
            "only local requests are allowed until dashboard_tokens is set",
        )


def has_role(caller: Caller, needed: AccessRole) -> bool:
    """Whether the caller's role includes this one."""
    return ROLE_RANKS[caller.role] >= ROLE_RANKS[needed]


def check_role(caller: Caller, needed: AccessRole) -> None:
    if not has_role(caller, needed):
        raise Problem(403, f"this needs the role {needed}; {caller.name} is {caller.role}", type="role")


def check_origin(headers: Mapping[str, str], *, proven: bool) -> None:
    """Refuse a write that a page of another site sends with this browser's rights (CSRF).

    A page cannot send a valid token. `proven`: the token is checked here; an application's own function may use a cookie
    instead, and then a page may send any token with it.
    """
    site = headers.get("sec-fetch-site")
    is_program = site is None and "origin" not in headers
    if bearer_token(headers) is not None and (proven or is_program):
        return
    if site is not None:
        if site in ("same-origin", "none"):
            return
    elif (origin := headers.get("origin")) is not None:
        if _same_origin(origin, headers.get("host", "")):
            return
    else:
        raise Problem(403, "a write needs a bearer token, or the Origin header that a browser sends", type="origin")
    raise Problem(403, "cross-site write refused", type="origin")


def check_mounted(settings: Settings) -> None:
    """Refuse a mounted dashboard without access control."""
    if not settings.dashboard_tokens and settings.dashboard_proxy is None:
        raise ConfigError(
            "access to the dashboard is not configured: give app.dashboard(access=...) a function that identifies callers, "
            "or set dashboard_tokens (DRUMBEAT_DASHBOARD_TOKENS=name:role:token) or dashboard_proxy; "
            'app.dashboard(access="open") makes every local user admin',
            "dashboard_tokens",
        )


def check_listener(settings: Settings, host: str) -> None:
    """Refuse to listen on other addresses than loopback without access control."""
    if not is_loopback(host) and not settings.dashboard_tokens and settings.dashboard_proxy is None:
        raise ConfigError(
            f"the dashboard does not listen on {host} without access control: set dashboard_tokens "
            "(DRUMBEAT_DASHBOARD_TOKENS=name:role:token) or dashboard_proxy, or listen on 127.0.0.1",
            "dashboard",
        )


def bearer_token(headers: Mapping[str, str]) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def session_cookies(headers: Mapping[str, str]) -> list[str]:
    """All session cookies: another dashboard on the same host may have set one of the same name.

    Parsed here, because http.cookies stops at the first malformed cookie of another application.
    """
    pairs = (each.partition("=") for each in headers.get("cookie", "").split(";"))
    return [value.strip() for name, _, value in pairs if name.strip() == COOKIE and value.strip()]


def parse_host(header: str) -> str:
    """The host of a Host header, without port and brackets; empty if malformed."""
    found = _HOST.fullmatch(header.strip().lower())
    if found is None:
        return ""
    if (inside := found["v6"]) is not None:
        return inside if parse_address(inside) is not None and ":" in inside else ""
    return found["name"].removesuffix(".")


def is_loopback(host: str) -> bool:
    address = parse_address(host.strip("[]"))
    return host.lower() in LOOPBACK_NAMES if address is None else address.is_loopback


def _is_proxied(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether the request came through a proxy: then the peer's address does not identify the client.

    A plain `proxy_pass` of nginx adds no header, but uses HTTP/1.0, and its Host differs from the host of the browser's page.
    """
    if any(name in PROXY_HEADERS or name.startswith(PROXY_HEADER_PREFIX) for name in headers):
        return True
    if scope.get("http_version") == "1.0":
        return True
    page = headers.get("origin") or headers.get("referer")
    return headers.get("sec-fetch-site") == "same-origin" and page is not None and not _is_page_of(page, headers)


def _is_page_of(page: str, headers: Mapping[str, str]) -> bool:
    _, slashes, rest = page.lower().partition("://")
    return bool(slashes) and rest.partition("/")[0] == headers.get("host", "").strip().lower()


def _same_origin(origin: str, host: str) -> bool:
    # The scheme is not compared: behind a proxy that terminates TLS it is http here and https in the browser.
    return bool(host) and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for a name or a unix socket; an IPv4 address mapped into IPv6 is the IPv4 one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def client_network(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Network | None:
    """What counts as one client: an IPv4 address, or the 64-bit network of an IPv6 address, which one person has."""
    address = parse_address(peer.partition("%")[0])
    return ipaddress.IPv6Network((address, 64), strict=False) if isinstance(address, ipaddress.IPv6Address) else address


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
