"""Bounds on JSON text, checked on the text itself: size, depth, NUL.

All are exact, and cheap for ordinary payloads: a quick test excludes violations, and only otherwise is the text scanned.
"""

from __future__ import annotations

import re

MAX_PAYLOAD = 256 * 1024
"""The maximum size of arguments or a result in bytes of JSON."""

MAX_DEPTH = 100
"""The maximum nesting of lists and objects within one value."""

# An unterminated string extends to the end: otherwise each quote in invalid JSON would be tried again.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# An even number of backslashes before it is just backslashes, and then the text "u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def has_nul(raw: bytes) -> bool:
    """Whether a text in this JSON contains a NUL character."""
    return b"\\u0000" in raw and _NUL.search(raw) is not None


def is_deeper(raw: bytes, levels: int) -> bool:
    """Whether lists and objects are nested more deeply than this. Invalid JSON may count as deep."""
    if len(raw) <= levels or raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    brackets = _STRING.sub(b"", raw).translate(_TO_SQUARE, _NOT_BRACKETS)
    # Each pass removes the innermost level, so ordinary data is gone after a few.
    for _ in range(levels):
        shallower = brackets.replace(b"[]", b"")
        if not shallower or len(shallower) == len(brackets):
            brackets = shallower
            break
        brackets = shallower
    return bool(brackets)
