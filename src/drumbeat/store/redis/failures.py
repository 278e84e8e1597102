"""Translates errors of the driver and the server into ours: one line, without a password."""

from collections.abc import Iterator
from contextlib import contextmanager

# This package is imported only when a Redis store is opened.
from redis import exceptions  # noqa: TID253

from drumbeat.errors import ConfigError, DrumbeatError, StoreError, StoreFull, StoreUnavailable

MIN_VERSION = (6, 2)

_ERROR_TYPES: dict[str, type[exceptions.RedisError]] = {
    "ERR": exceptions.ResponseError,
    "ASK": exceptions.AskError,
    "CLUSTERDOWN": exceptions.ClusterDownError,
    "LOADING": exceptions.BusyLoadingError,
    "MASTERDOWN": exceptions.MasterDownError,
    "MOVED": exceptions.MovedError,
    "NOAUTH": exceptions.AuthenticationError,
    "NOPERM": exceptions.NoPermissionError,
    "NOSCRIPT": exceptions.NoScriptError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
    "TRYAGAIN": exceptions.TryAgainError,
    "WRONGPASS": exceptions.AuthenticationError,
}
DRIVER_ERRORS = (OSError, UnicodeEncodeError, exceptions.RedisError)
"""Errors of the driver and the system; TimeoutError is an OSError."""
_AUTH_ERRORS = (exceptions.AuthenticationError, exceptions.AuthorizationError)
# First words of replies about the server's state rather than the call.
_UNAVAILABLE_CODES = frozenset(
    {
        *("BUSY", "LOADING", "MISCONF", "MASTERDOWN", "NOREPLICAS", "UNKILLABLE", "UNBLOCKED"),
        *("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "FAILOVER", "REDIRECT"),
    }
)


def reply_error(text: str) -> exceptions.RedisError:
    """Return the driver's exception for an error reply."""
    code, _, rest = text.partition(" ")
    kind = _ERROR_TYPES.get(code)
    return exceptions.ResponseError(text) if kind is None else kind(rest)


@contextmanager
def translate_errors(display_url: str) -> Iterator[None]:
    """`display_url`: the URL without its password."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate_error(error, display_url) from error


def translate_error(error: Exception, display_url: str) -> DrumbeatError:
    """Translate one of DRIVER_ERRORS."""
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{display_url}: no answer in time")
    if isinstance(error, UnicodeEncodeError):
        return StoreError(f"{display_url}: a text that is no Unicode cannot be sent")
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, exceptions.NoPermissionError) or "NOPERM" in reason:
        return ConfigError(f"{display_url}: this user lacks a permission ({reason})", "url")
    if isinstance(error, _AUTH_ERRORS):
        return ConfigError(f"{display_url}: no entrance for this user and password ({reason})", "url")
    if isinstance(error, exceptions.OutOfMemoryError) or reason.startswith("OOM ") or "-OOM " in reason:
        return StoreFull(f"{display_url}: the server is at its maxmemory ({reason})")
    if isinstance(error, exceptions.ReadOnlyError) or "READONLY" in reason:
        return StoreUnavailable(f"{display_url}: the server is read-only: it is a replica")
    if not isinstance(error, exceptions.ResponseError):
        return StoreUnavailable(f"{display_url}: {reason}")
    if (
        isinstance(error, exceptions.ClusterError | exceptions.AskError)
        or reason.partition(" ")[0] in _UNAVAILABLE_CODES
    ):
        return StoreUnavailable(f"{display_url}: {reason}")
    if "DB index" in reason or "SELECT is not allowed" in reason:
        return ConfigError(f"{display_url}: there is no such database ({reason})", "url")
    return StoreError(f"{display_url}: {reason}")


def is_connection_intact(error: BaseException) -> bool:
    """Whether the connection can be used again: the reply was complete, or nothing was sent."""
    return isinstance(error, exceptions.ResponseError | DrumbeatError | ValueError | TypeError)
