"""A parser of `.env` files: KEY=value lines, quotes, comments and `export`, and nothing else.

No interpolation, no multi-line values, and the process's own environment is never changed.
"""

from __future__ import annotations

import re
from pathlib import Path

from .errors import ConfigError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read(path: Path) -> dict[str, str]:
    """The variables of a file; none if it does not exist."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The line may contain a password: only its number is shown.
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 (line {line})") from None
    return parse(text, source=str(path))


def parse(text: str, *, source: str = ".env") -> dict[str, str]:
    """The variables of a text; the last of two with the same name wins."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = None if match is None else _parse_value(match[2])
        if match is None or value is None:
            # The line may contain a password: only its number is shown.
            raise ConfigError(f"{source} line {number} is not of the form KEY=value")
        found[match[1]] = value
    return found


def _parse_value(text: str) -> str | None:
    """The value right of the `=`; None if a quote is not closed."""
    if not text.startswith(("'", '"')):
        # A comment needs a space before it, so that a URL may contain a `#`.
        return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
    match = _QUOTED.fullmatch(text)
    if match is None:
        return None
    if match[1] is None:
        return match[2]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), match[1])
