"""Text that every store can keep: error messages, tracebacks, progress."""

from __future__ import annotations

_NOTE = " ... [{} characters cut] ... "


def make_storable(text: str, limit: int) -> str:
    """The text with NUL and lone surrogates escaped, in at most `limit` characters.

    One bad character would make a store refuse the whole batch. A text that is too long loses its middle: the beginning of
    an error and the end of a traceback matter most.
    """
    # Cut first, so that megabytes are not escaped; and again after, because escaping lengthens.
    text = _cut(text, limit)
    text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return _cut(text, limit)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    kept = limit - len(_NOTE.format(len(text)))
    if kept < 20:
        return text[: max(limit, 0)]
    head = kept // 2
    tail = kept - head
    return text[:head] + _NOTE.format(len(text) - kept) + text[len(text) - tail :]
