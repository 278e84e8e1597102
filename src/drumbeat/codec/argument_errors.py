"""Error messages of refused arguments: slow paths that find the argument to name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from drumbeat.codec.fidelity import Difference
from drumbeat.codec.hints import Parameter, format_hint
from drumbeat.codec.json_codec import JsonCodec, describe_encoding_problem
from drumbeat.errors import InvalidArguments

_PATH = re.compile(r"\$\.([^.\[`]+)([^`]*)`$")


def binding_error(
    task: str, parameters: Iterable[Parameter], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> InvalidArguments:
    """The call does not match the parameters."""
    known = {parameter.name: parameter for parameter in parameters}
    positional = [parameter.name for parameter in known.values() if parameter.kind != "keyword"]
    filled = set(positional[: len(args)])
    for name in kwargs:
        if name not in known:
            takes = ", ".join(known) or "no arguments"
            return InvalidArguments(f"{task}: unknown argument {name!r}; it takes {takes}", name)
        if known[name].kind == "positional":
            return InvalidArguments(f"{task}: argument {name!r} must be given by position, not by name", name)
        if name in filled:
            return InvalidArguments(f"{task}: argument {name!r} was given twice, by position and by name", name)
    if len(args) > len(positional):
        return InvalidArguments(f"{task}: takes at most {len(positional)} positional arguments, but got {len(args)}")
    missing = [name for name, p in known.items() if p.required and name not in filled and name not in kwargs]
    return InvalidArguments(f"{task}: argument {missing[0]!r} is missing", missing[0])


def encoding_error(task: str, codec: JsonCodec, given: Mapping[str, Any], error: Exception) -> InvalidArguments:
    """A value could not be encoded as JSON: find its argument."""
    for name, value in given.items():
        try:
            codec.encoder.encode(value)
        except Exception as own:  # the same broad kind as in the caller, now for one argument
            return InvalidArguments(f"{task}: argument {name!r} {describe_encoding_problem(own)}", name)
    return InvalidArguments(f"{task}: the arguments cannot be written as JSON: {error}")


def size_error(task: str, codec: JsonCodec, given: Mapping[str, Any], size: int, limit: int) -> InvalidArguments:
    """The arguments are too large: name the largest."""
    name = max(given, key=lambda name: len(codec.encoder.encode(given[name])))
    return InvalidArguments(
        f"{task}: the arguments are {size:,} bytes of JSON, over the limit of {limit:,}, and {name!r} is the largest: "
        "store the data elsewhere and pass a reference",
        name,
    )


def type_error(task: str, given: Mapping[str, Any], hints: Mapping[str, Any], error: Exception) -> InvalidArguments:
    """The typed decoder refused the encoded value: its message ends with the path."""
    message, _, place = str(error).rpartition(" - at ")
    path = _PATH.search(place)
    if path is None or path[1] not in given:
        return InvalidArguments(f"{task}: {' '.join(str(error).split())}")
    name, rest = path[1], path[2]
    message = " ".join(message.split())
    if not rest and message.startswith("Expected `") and ", got `" in message:
        message = f"must be {format_hint(hints[name])}, not {type(given[name]).__name__}"
        return InvalidArguments(f"{task}: argument {name!r} {message}", name)
    return InvalidArguments(f"{task}: argument {name!r}{f' at {rest}' if rest else ''}: {message}", name)


def changed_value_error(task: str, name: str, value: Any, hint: Any, found: Difference) -> InvalidArguments:
    """The value was decoded as a different one."""
    where, reason = found
    if not where and hint is not Any and reason.startswith("is ") and "would arrive as" in reason:
        reason = f"must be {format_hint(hint)}, not {type(value).__name__}"
    return InvalidArguments(f"{task}: argument {name!r}{f' at {where}' if where else ''} {reason}", name)
