"""Typed JSON of arguments and results, from a function's own signature.

`Signature` encodes and decodes the arguments of a task, `encode_result` and `decode_result` its results, both by the
`JsonCodec` of an app; `storable_text.py` makes any text storable. Values that would not survive the round trip are refused at
enqueue. The content of a store is untrusted: only JSON is decoded, and its size and depth are bounded before it is parsed.
"""

from drumbeat.codec.json_codec import JsonCodec, Undecodable
from drumbeat.codec.limits import MAX_DEPTH, MAX_PAYLOAD
from drumbeat.codec.parent_values import JobOutcome, ParentReference, Results
from drumbeat.codec.results import Unstorable, decode_result, encode_result
from drumbeat.codec.signature import Signature, return_type
from drumbeat.codec.storable_text import make_storable

__all__ = [
    "MAX_DEPTH",
    "MAX_PAYLOAD",
    "JobOutcome",
    "JsonCodec",
    "ParentReference",
    "Results",
    "Signature",
    "Undecodable",
    "Unstorable",
    "decode_result",
    "encode_result",
    "make_storable",
    "return_type",
]
