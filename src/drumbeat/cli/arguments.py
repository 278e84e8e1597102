"""The arguments of a job on the command line: `customer=42 tags:='["a"]'`, or one JSON object.

`name=text` is parsed by the type of the parameter: first as a string of that type (str, UUID, Decimal, date, Enum ...), then as
JSON (numbers, true, null). `name:=json` is always JSON. A parameter without a type takes the string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from drumbeat.cli.failures import BadInput
from drumbeat.codec import MAX_DEPTH, MAX_PAYLOAD, Signature, Undecodable
from drumbeat.codec.hints import format_hint
from drumbeat.codec.json_codec import decode_bounded
from drumbeat.names import short_repr

_PAIR = re.compile(r"([^\W\d]\w*)(:?=)(.*)", re.DOTALL)

TypedArguments = dict[str, tuple[str, bool]]
"""The text of each argument, and whether it must be JSON."""


def parse_arguments(pairs: Iterable[str], document: str | None) -> TypedArguments:
    """Parse the words of the command line, before the task is known."""
    typed: TypedArguments = (
        {} if document is None else {name: (text, True) for name, text in _parse_object(document).items()}
    )
    for pair in pairs:
        found = _PAIR.fullmatch(pair)
        if found is None:
            raise BadInput(f"argument {short_repr(pair)}: write name=value, or name:=JSON")
        name, mark, text = found.groups()
        if name in typed:
            raise BadInput(f"argument {name!r} was given twice")
        typed[name] = (text, mark == ":=")
    return typed


def _parse_object(document: str) -> dict[str, str]:
    try:
        parts = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"--args must be one JSON object such as '{{\"customer\": 42}}': {error}") from error
    return {name: bytes(raw).decode() for name, raw in parts.items()}


def decode_by_signature(signature: Signature, task: str, typed: TypedArguments) -> tuple[list[Any], dict[str, Any]]:
    """The values, positional and by name, as the task's signature types them; enqueue checks whether all are given.

    Raises:
        BadInput: which argument, and what it must be.
    """
    hints: Mapping[str, Any] = signature.hints
    values = {
        name: _decode_value(task, name, signature.codec.decoder_of(hints[name]), hints[name], text, is_json)
        if name in hints
        else text
        for name, (text, is_json) in typed.items()
    }
    positional: list[Any] = []
    for parameter in signature.parameters:
        if parameter.kind != "positional" or parameter.name not in values:
            break
        positional.append(values.pop(parameter.name))
    return positional, values


def _decode_value(task: str, name: str, decoder: msgspec.json.Decoder[Any], hint: Any, text: str, is_json: bool) -> Any:
    forms = [text] if is_json else [msgspec.json.encode(text).decode(), text]
    for form in forms:
        try:
            return decode_bounded(decoder, form, limit=MAX_PAYLOAD, depth=MAX_DEPTH)
        except Undecodable as error:
            refusal = error
    if is_json:
        raise BadInput(f"task {task}: argument {name!r}: {refusal.reason}")
    raise BadInput(
        f"task {task}: argument {name!r} must be {format_hint(hint)}, not {short_repr(text)}; "
        f"write {name}:=JSON for a JSON value"
    )
