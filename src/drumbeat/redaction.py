"""What is hidden from people, in one place: values that are named like a secret, and passwords in URLs.

Logs, the command line, the dashboard, its API and every error message come here. All functions take linear time, because the
text is untrusted: arguments, results and errors of jobs, and whatever drivers say.

    is_secret(name)      whether a value of this name is hidden
    redact(value)        Python values: dicts, lists, texts, in any depth
    redact_json(text)    JSON text, to the letter but for what is hidden; also text that is cut off or is no JSON
    mask_url(url)        one URL, well-formed or not
    mask_urls(text)      running text, such as a message or a traceback
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

HIDDEN = "***"
WEB_HIDDEN = "•••"
"""On pages, and in what the API gives."""

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
"""Parts of names, without separators and in lower case."""
_SEPARATORS = str.maketrans("", "", "-_. ")
MAX_CACHED_NAME = 100
"""What was found about a longer name is not kept."""
MAX_DEPTH = 100

# Possessive, and a text that never ends goes to the end: nothing is ever tried twice.
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_TEXT = re.compile(_QUOTED, re.DOTALL)
_TEXT_AND_COLON = re.compile(rf"({_QUOTED})(\s*+:\s*+)?", re.DOTALL)
_PLAIN = re.compile(r"[^\s,\]}]++")
_STRUCTURE = re.compile(r'["{}\[\]]')
_PARAMETER = re.compile(r"(?:(?<=[?&;\s])|\A)([A-Za-z][\w.-]{0,63}+)=")
_NEXT_PARAMETER = re.compile(r"[&;\s][A-Za-z][\w.-]{0,63}+=")
_RUN = re.compile(r"\S++")


def is_secret(name: str) -> bool:
    """Whether a value of this name is hidden from people."""
    return _is_secret(name) if len(name) <= MAX_CACHED_NAME else _contains_secret_word(name)


def _contains_secret_word(text: str) -> bool:
    plain = text.casefold().translate(_SEPARATORS)
    return any(word in plain for word in _SECRET_WORDS)


_is_secret = lru_cache(maxsize=2_048)(_contains_secret_word)


def redact(value: Any, hidden: str = HIDDEN, depth: int = 0) -> Any:
    """The same value, but whatever stands under a name like a secret's is hidden, and so are passwords in URLs."""
    if isinstance(value, str):
        return redact_json(value, hidden) if value[:1] in ("{", "[") else mask_urls(value, hidden)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if depth >= MAX_DEPTH:
            return hidden
        return {key: hidden if is_secret(str(key)) else redact(each, hidden, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(each, hidden, depth + 1) for each in value] if depth < MAX_DEPTH else hidden
    return value


def redact_json(text: str, hidden: str = HIDDEN) -> str:
    """The JSON text without what looks like a secret. Everything else stays as it is, so that no number is rounded.

    The text is walked, not decoded: it may be anything. Of text that is cut off, a secret that has begun is hidden to the end.
    """
    has_urls = "://" in text
    # An escaped letter may be part of such a name.
    if not has_urls and not _contains_secret_word(text) and "\\u" not in text:
        return text
    parts: list[str] = []
    kept = place = 0
    while (found := _TEXT_AND_COLON.search(text, place)) is not None:
        key, colon = found.groups()
        place = found.end()
        if colon is not None and is_secret(_decode_key(key)):
            parts += [text[kept:place], f'"{hidden}"']
            kept = place = _find_value_end(text, place)
        elif has_urls and "://" in key:
            parts += [text[kept : found.start()], _mask_quoted(key, hidden), colon or ""]
            kept = place
    return "".join([*parts, text[kept:]])


def _mask_quoted(quoted: str, hidden: str) -> str:
    """A JSON string, perhaps one that is cut off: then the @ that says what is a password may be missing."""
    if quoted.endswith('"'):
        return f'"{mask_urls(quoted[1:-1], hidden)}"'
    before, slashes, last = quoted.rpartition("://")
    is_cut = not any(char.isspace() for char in last)
    return mask_urls(before, hidden) + slashes + hidden if is_cut else mask_urls(quoted, hidden)


def _decode_key(key: str) -> str:
    if "\\" not in key:
        return key[1:-1]
    try:
        return msgspec.json.decode(key, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return key


def _find_value_end(text: str, start: int) -> int:
    """Where the value ends that begins here."""
    first = text[start : start + 1]
    if first == '"':
        found = _TEXT.match(text, start)
        return len(text) if found is None else found.end()
    if first not in ("{", "["):
        plain = _PLAIN.match(text, start)
        return start if plain is None else plain.end()
    depth, place = 0, start
    while (mark := _STRUCTURE.search(text, place)) is not None:
        if mark[0] == '"':
            found = _TEXT.match(text, mark.start())
            place = len(text) if found is None else found.end()
            continue
        depth += 1 if mark[0] in "{[" else -1
        place = mark.end()
        if depth == 0:
            return place
    return len(text)


def mask_url(url: str, hidden: str = HIDDEN) -> str:
    """The URL without its passwords: fit for messages and logs.

    A password may have any character in it, quoted or not, so this does not parse: from the first colon behind the scheme to
    the last @ everything is hidden, and so is the value of each parameter that is named like a secret. Where that hides more
    than a password (an @ in the query), it hides too much.
    """
    head, slashes, rest = url.partition("://")
    if not slashes:
        head, rest = "", url
    places = [*_find_secret_parameters(rest)]
    at = rest.rfind("@")
    colon = rest.find(":", 0, max(at, 0))
    if colon >= 0:
        places.append((colon + 1, at))
    elif at >= 0 and not slashes:
        places.append((0, at))
    shown, kept = [head, slashes], 0
    for begin, end in sorted(places):
        if begin >= kept and begin < end:
            shown += [rest[kept:begin], hidden]
        kept = max(kept, end)
    return "".join([*shown, rest[kept:]])


def _find_secret_parameters(text: str) -> list[tuple[int, int]]:
    """Where the values of secret parameters are; a value goes on to the next `&name=`, whatever is in it."""
    if "=" not in text:
        return []
    found, place = [], 0
    while (parameter := _PARAMETER.search(text, place)) is not None:
        place = parameter.end()
        if is_secret(parameter[1]):
            following = _NEXT_PARAMETER.search(text, place)
            end = len(text) if following is None else following.start()
            found.append((place, end))
            place = end
    return found


def mask_urls(text: str, hidden: str = HIDDEN) -> str:
    """The text with the passwords of all URLs in it hidden. A URL ends where there is white space."""
    if "://" not in text:
        return text
    parts, kept, place = [], 0, 0
    while (scheme := text.find("://", place)) >= 0:
        run = _RUN.match(text, scheme)
        place = len(text) if run is None else run.end()
        parts += [text[kept:scheme], mask_url(text[scheme:place], hidden)]
        kept = place
    return "".join([*parts, text[kept:]])
