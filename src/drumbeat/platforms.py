"""What needs a POSIX system, refused in one line elsewhere."""

from __future__ import annotations

from .errors import ConfigError

INSTEAD = "run them in WSL or in a container"


def require_posix(what: str, instead: str = INSTEAD) -> None:
    """Refuse what this system cannot do.

    Raises:
        ConfigError: this is Windows.
    """
    try:
        import fcntl  # noqa: F401  # the test by which Python itself tells the two apart
    except ImportError:
        raise ConfigError(f"{what} Linux, macOS or another POSIX system: on Windows, {instead}") from None
