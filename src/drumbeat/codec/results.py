"""Results of tasks, stored as JSON and decoded by the return annotation.

A result never makes a job fail: one that cannot be stored is `Unstorable`, and the job has still succeeded. A value of another
type than the annotation is stored as it is.
"""

from __future__ import annotations

import re
from typing import Any

from drumbeat.codec.fidelity import find_unkeepable
from drumbeat.codec.json_codec import PLAIN, JsonCodec, decode_bounded, describe_encoding_problem
from drumbeat.codec.limits import MAX_DEPTH, MAX_PAYLOAD, has_nul, is_deeper

# What a number that JSON cannot keep looks like once written: only then is the value itself walked.
_SUSPECT = re.compile(rb"null|[nN]a[nN]|[iI]nf|[0-9]{19}")
_MAX_RESULT_READ = 64 * 1024 * 1024


class Unstorable(Exception):
    """A result that cannot be stored, and the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def encode_result(value: Any, *, limit: int = MAX_PAYLOAD, codec: JsonCodec = PLAIN) -> str:
    """The JSON of a result.

    Raises:
        Unstorable: it is no JSON, would be decoded as a different value, or is too large.
    """
    if value is None:
        return "null"
    try:
        raw = codec.encoder.encode(value)
    except Exception as error:  # a model's own serializers run in there, and may raise anything
        raise Unstorable(f"the result {describe_encoding_problem(error)}") from error
    if len(raw) > limit:
        raise Unstorable(f"the result is {len(raw):,} bytes of JSON, over the limit of {limit:,}")
    if has_nul(raw):
        raise Unstorable("the result contains a NUL character")
    if is_deeper(raw, MAX_DEPTH):
        raise Unstorable(f"the result is nested deeper than {MAX_DEPTH} levels")
    if _SUSPECT.search(raw) and (found := find_unkeepable(value)) is not None:
        raise Unstorable(f"the result{found[0]} {found[1]}")
    return raw.decode()


def decode_result(raw: str | bytes, type: Any = None, codec: JsonCodec = PLAIN) -> Any:
    """Decode a result by the return annotation; None stands for an unknown type.

    Raises:
        Undecodable: it is no JSON, or not of that type.
    """
    decoder = codec.result_decoder_of(Any if type is None else type)
    return decode_bounded(decoder, raw, limit=_MAX_RESULT_READ, depth=MAX_DEPTH)
