"""The arguments of a job as people type them: `customer=42 tags:='["a"]'`, or one JSON object.

`name=text` is read by the type of the parameter: first as a text of that type (str, UUID, Decimal, date, Enum ...), then as
JSON (numbers, true, null). `name:=json` is JSON and nothing else. A parameter without a type takes the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from drumbeat.cli.failures import Refused
from drumbeat.codec import MAX_DEPTH, MAX_PAYLOAD, Signature, Undecodable
from drumbeat.codec.hints import text_of
from drumbeat.codec.wire import decoder_of, read
from drumbeat.names import shown

_PAIR = re.compile(r"([^\W\d]\w*)(:?=)(.*)", re.DOTALL)

Typed = dict[str, tuple[str, bool]]
"""What was typed for each argument, and whether it must be JSON."""


def parse(pairs: Iterable[str], document: str | None) -> Typed:
    """Understand the words of the command line, before any task is known."""
    typed: Typed = {} if document is None else {name: (text, True) for name, text in _object(document).items()}
    for pair in pairs:
        found = _PAIR.fullmatch(pair)
        if found is None:
            raise Refused(f"argument {shown(pair)}: write name=value, or name:=JSON")
        name, mark, text = found.groups()
        if name in typed:
            raise Refused(f"argument {name!r} was given twice")
        typed[name] = (text, mark == ":=")
    return typed


def _object(document: str) -> dict[str, str]:
    try:
        parts = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused(f"--args must be one JSON object such as '{{\"customer\": 42}}': {error}") from error
    return {name: bytes(raw).decode() for name, raw in parts.items()}


def typed_by(signature: Signature, task: str, typed: Typed) -> tuple[list[Any], dict[str, Any]]:
    """The values as the task's signature types them; whether all are there is for enqueue to say.

    Raises:
        Refused: which argument, and what it must be.
    """
    hints: Mapping[str, Any] = signature.hints
    values = {
        name: _value(task, name, hints[name], text, is_json) if name in hints else text
        for name, (text, is_json) in typed.items()
    }
    by_place: list[Any] = []
    for parameter in signature.parameters:
        if parameter.kind != "positional" or parameter.name not in values:
            break
        by_place.append(values.pop(parameter.name))
    return by_place, values


def _value(task: str, name: str, hint: Any, text: str, is_json: bool) -> Any:
    decoder = decoder_of(hint)
    forms = [text] if is_json else [msgspec.json.encode(text).decode(), text]
    for form in forms:
        try:
            return read(decoder, form, limit=MAX_PAYLOAD, depth=MAX_DEPTH)
        except Undecodable as error:
            refusal = error
    if is_json:
        raise Refused(f"task {task}: argument {name!r}: {refusal.reason}")
    raise Refused(
        f"task {task}: argument {name!r} must be {text_of(hint)}, not {shown(text)}; write {name}:=JSON for a JSON value"
    )
