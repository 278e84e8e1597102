"""Redaction of secrets: values whose names look like secrets, and passwords in URLs.

Logs, the CLI, the dashboard, its API and every error message use this module. All functions take linear time, because the
text is untrusted: arguments, results and errors of jobs, and messages of drivers.

    is_secret(name)        whether a value of this name is hidden
    redact(value)          Python values: dicts, lists, strings, at any depth
    redact_json(text)      JSON text, unchanged except for secrets; also truncated or invalid JSON
    mask_url(url)          one URL, well-formed or not
    mask_urls(text)        running text, such as a message or a traceback
    format_error(failure)  an error on one line: its class and its message
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from drumbeat.core.job import Failure

HIDDEN = "•••"
"""Replaces each secret. Rare in real values: the dashboard refuses arguments that still contain it."""

_SECRET_WORDS = (
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "bearer",
    "apikey",
    "authorization",
    "authorisation",
    "cookie",
    "credential",
    "privatekey",
    "accesskey",
    "signingkey",
    "encryptionkey",
)
"""Substrings of names, lower case and without separators."""
_SEPARATORS = str.maketrans("", "", "-_. ")
MAX_CACHED_NAME = 100
"""Results for longer names are not cached."""
MAX_DEPTH = 100

# Possessive quantifiers, and an unterminated string extends to the end: no backtracking.
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_TEXT = re.compile(_QUOTED, re.DOTALL)
_TEXT_AND_COLON = re.compile(rf"({_QUOTED})(\s*+:\s*+)?", re.DOTALL)
_PLAIN = re.compile(r"[^\s,\]}]++")
_STRUCTURE = re.compile(r'["{}\[\]]')
_PARAMETER = re.compile(r"(?:(?<=[?&;\s])|\A)([A-Za-z][\w.-]{0,63}+)=")
_NEXT_PARAMETER = re.compile(r"[&;\s][A-Za-z][\w.-]{0,63}+=")
_RUN = re.compile(r"\S++")


def is_secret(name: str) -> bool:
    """Whether a value of this name is hidden."""
    return _is_secret(name) if len(name) <= MAX_CACHED_NAME else _contains_secret_word(name)


def _contains_secret_word(text: str) -> bool:
    plain = text.casefold().translate(_SEPARATORS)
    return any(word in plain for word in _SECRET_WORDS)


_is_secret = lru_cache(maxsize=2_048)(_contains_secret_word)


def redact(value: Any, depth: int = 0) -> Any:
    """A copy of the value in which values with secret names, and passwords in URLs, are hidden."""
    if isinstance(value, str):
        return redact_json(value) if value[:1] in ("{", "[") else mask_urls(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if depth >= MAX_DEPTH:
            return HIDDEN
        return {key: HIDDEN if is_secret(str(key)) else redact(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(each, depth + 1) for each in value] if depth < MAX_DEPTH else HIDDEN
    return value


def redact_json(text: str) -> str:
    """The JSON text with secrets hidden. Everything else stays byte for byte, so no number is rounded.

    Scans without decoding, because the text may be invalid. A secret that truncation cuts off is hidden to the end.
    """
    has_urls = "://" in text
    # An escaped letter may be part of a secret name.
    if not has_urls and not _contains_secret_word(text) and "\\u" not in text:
        return text
    parts: list[str] = []
    kept = position = 0
    while (found := _TEXT_AND_COLON.search(text, position)) is not None:
        key, colon = found.groups()
        position = found.end()
        if colon is not None and is_secret(_decode_key(key)):
            parts += [text[kept:position], f'"{HIDDEN}"']
            kept = position = _find_value_end(text, position)
        elif has_urls and "://" in key:
            parts += [text[kept : found.start()], _mask_quoted(key), colon or ""]
            kept = position
    return "".join([*parts, text[kept:]])


def _mask_quoted(quoted: str) -> str:
    """Mask a JSON string. In a truncated one the @ that ends a password may be missing, so the rest is hidden."""
    if quoted.endswith('"'):
        return f'"{mask_urls(quoted[1:-1])}"'
    before, slashes, last = quoted.rpartition("://")
    is_cut = not any(char.isspace() for char in last)
    return mask_urls(before) + slashes + HIDDEN if is_cut else mask_urls(quoted)


def _decode_key(key: str) -> str:
    if "\\" not in key:
        return key[1:-1]
    try:
        return msgspec.json.decode(key, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return key


def _find_value_end(text: str, start: int) -> int:
    """The end of the JSON value that begins at `start`."""
    first = text[start : start + 1]
    if first == '"':
        found = _TEXT.match(text, start)
        return len(text) if found is None else found.end()
    if first not in ("{", "["):
        plain = _PLAIN.match(text, start)
        return start if plain is None else plain.end()
    depth, position = 0, start
    while (mark := _STRUCTURE.search(text, position)) is not None:
        if mark[0] == '"':
            found = _TEXT.match(text, mark.start())
            position = len(text) if found is None else found.end()
            continue
        depth += 1 if mark[0] in "{[" else -1
        position = mark.end()
        if depth == 0:
            return position
    return len(text)


def mask_url(url: str) -> str:
    """The URL with its passwords hidden, for messages and logs.

    A password may contain any character, quoted or not, so this does not parse: everything from the first colon after the
    scheme to the last @ is hidden, and so is the value of each parameter with a secret name. An @ in the query therefore
    hides more than the password.
    """
    head, slashes, rest = url.partition("://")
    if not slashes:
        head, rest = "", url
    spans = [*_find_secret_parameters(rest)]
    at = rest.rfind("@")
    colon = rest.find(":", 0, max(at, 0))
    if colon >= 0:
        spans.append((colon + 1, at))
    elif at >= 0 and not slashes:
        spans.append((0, at))
    shown, kept = [head, slashes], 0
    for begin, end in sorted(spans):
        if begin >= kept and begin < end:
            shown += [rest[kept:begin], HIDDEN]
        kept = max(kept, end)
    return "".join([*shown, rest[kept:]])


def _find_secret_parameters(text: str) -> list[tuple[int, int]]:
    """The spans of the values of secret parameters; a value extends to the next `&name=`."""
    if "=" not in text:
        return []
    found, position = [], 0
    while (parameter := _PARAMETER.search(text, position)) is not None:
        position = parameter.end()
        if is_secret(parameter[1]):
            following = _NEXT_PARAMETER.search(text, position)
            end = len(text) if following is None else following.start()
            found.append((position, end))
            position = end
    return found


def mask_urls(text: str) -> str:
    """The text with the passwords of all its URLs hidden. A URL ends at white space."""
    if "://" not in text:
        return text
    parts, kept, position = [], 0, 0
    while (scheme := text.find("://", position)) >= 0:
        run = _RUN.match(text, scheme)
        position = len(text) if run is None else run.end()
        parts += [text[kept:scheme], mask_url(text[scheme:position])]
        kept = position
    return "".join([*parts, text[kept:]])


def format_error(failure: Failure, limit: int = 200) -> str:
    """`ValueError: bad amount`, redacted and then truncated to `limit` characters."""
    kind = failure.type.rpartition(".")[2]
    return (f"{kind}: {redact(failure.message)}" if failure.message else kind)[:limit]
