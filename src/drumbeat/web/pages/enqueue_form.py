"""The form that enqueues a task: a field for each parameter, by its type. Pure, free of HTML.

static/enqueue.js builds the arguments as JSON text, so that a number of twenty digits is not rounded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drumbeat.admin import TaskInfo
from drumbeat.admin.tasks import ParameterInfo

_KINDS = {"integer": "whole", "number": "number", "boolean": "choice", "string": "text"}
_FORMATS = {"date": "YYYY-MM-DD", "date-time": "2026-11-15T09:30:00Z", "uuid": "xxxxxxxx-xxxx-...", "time": "09:30:00"}
MAX_OPTIONS = 50


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the form."""

    name: str
    kind: str
    """whole, number, choice, text or json: how its value becomes JSON."""
    type: str
    required: bool
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """(JSON text, word) of a choice."""


def fields_of(info: TaskInfo) -> tuple[FormField, ...]:
    """A field for each parameter, in the order of the signature."""
    return tuple(field_of(parameter) for parameter in info.parameters)


def field_of(parameter: ParameterInfo) -> FormField:
    schema = _resolve_reference(parameter.schema)
    kind, options = _kind(schema)
    return FormField(
        name=parameter.name,
        kind=kind,
        type=parameter.type,
        required=parameter.required,
        hint=_hint(parameter, schema, kind),
        options=options,
    )


def _resolve_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its reference resolved."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = schema.get("$defs", {}).get(reference.rsplit("/", 1)[-1])
        return found if isinstance(found, dict) else {}
    return schema


def _kind(schema: dict[str, Any]) -> tuple[str, tuple[tuple[str, str], ...]]:
    if isinstance(values := schema.get("enum"), list) and 0 < len(values) <= MAX_OPTIONS:
        return "choice", tuple((msgspec.json.encode(value).decode(), str(value)) for value in values)
    kind = schema.get("type")
    if kind == "boolean":
        return "choice", (("true", "true"), ("false", "false"))
    return (_KINDS[kind], ()) if isinstance(kind, str) and kind in _KINDS else ("json", ())


def _hint(parameter: ParameterInfo, schema: dict[str, Any], kind: str) -> str:
    parts = []
    if kind == "json":
        parts.append("JSON")
    if (form := _FORMATS.get(schema.get("format", ""))) is not None:
        parts.append(f"such as {form}")
    if not parameter.required:
        parts.append(f"left empty: {parameter.default}" if parameter.default is not None else "may be left empty")
    return "; ".join(parts)
