"""JSON texts for display: values of keys that are named like a secret are dots, everything else is as it was, to the letter.

The text is walked, not decoded and written anew, so that no number is rounded. It comes from a store and may be anything: what
is no JSON is walked as far as it looks like some.
"""

from __future__ import annotations

import re

import msgspec

from drumbeat.names import is_secret

DOTS = '"•••"'
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_COLON = re.compile(r"\s*:\s*")
_PLAIN = re.compile(r"[^\s,\]}]+")
_NEXT = re.compile(r'["{}\[\]]')


def redacted(text: str) -> str:
    """The JSON text without what looks like a secret."""
    # An escaped letter may be part of such a name.
    if not is_secret(text) and "\\u" not in text:
        return text
    parts: list[str] = []
    kept = place = 0
    while (key := _TEXT.search(text, place)) is not None:
        place = key.end()
        colon = _COLON.match(text, place)
        if colon is None or not is_secret(_name(key[0])):
            continue
        end = _end(text, colon.end())
        parts += [text[kept : colon.end()], DOTS]
        kept = place = end
    return "".join([*parts, text[kept:]])


def _name(key: str) -> str:
    try:
        return msgspec.json.decode(key, type=str)
    except (msgspec.DecodeError, UnicodeError):
        return key


def _end(text: str, start: int) -> int:
    """Where the value ends that begins here."""
    if text[start : start + 1] == '"':
        found = _TEXT.match(text, start)
        return len(text) if found is None else found.end()
    if text[start : start + 1] not in ("{", "["):
        plain = _PLAIN.match(text, start)
        return start if plain is None else plain.end()
    depth, place = 0, start
    while (mark := _NEXT.search(text, place)) is not None:
        if mark[0] == '"':
            found = _TEXT.match(text, mark.start())
            place = len(text) if found is None else found.end()
            continue
        depth += 1 if mark[0] in "{[" else -1
        place = mark.end()
        if depth == 0:
            return place
    return len(text)
