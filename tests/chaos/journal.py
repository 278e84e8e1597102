"""What processes did, written by themselves outside of the library: one JSON line an event, appended in one write.

The time is CLOCK_MONOTONIC, which all processes of this machine share. A line that a SIGKILL has torn is skipped: its process
died before it could do what the line tells.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

FILE = "CHAOS_JOURNAL"
NODE = "CHAOS_NODE"

_open: dict[str, int] = {}


class Entry(msgspec.Struct, frozen=True, array_like=True):
    ns: int
    node: str
    pid: int
    parent: int
    event: str
    facts: dict[str, Any]

    @property
    def at(self) -> float:
        return self.ns / 1e9


_decoder = msgspec.json.Decoder(Entry)


def write(event: str, /, **facts: Any) -> None:
    path = os.environ[FILE]
    if path not in _open:
        _open[path] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    entry = [time.monotonic_ns(), os.environ.get(NODE, "harness"), os.getpid(), os.getppid(), event, facts]
    # A line break first: what a torn line has left must not spoil this one.
    os.write(_open[path], b"\n" + msgspec.json.encode(entry) + b"\n")


def read(path: Path) -> Iterator[Entry]:
    with path.open("rb") as lines:
        for line in lines:
            if len(line) > 1:
                try:
                    yield _decoder.decode(line)
                except msgspec.DecodeError:
                    continue
