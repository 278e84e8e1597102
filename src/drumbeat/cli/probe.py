"""Reads the settings, tasks and queues of a program without importing it here: a short-lived child process does.

A supervisor runs no user code, so that none can crash or block it. But a program's settings may be in its code: the child
imports it, sends what is needed over a socket, and exits.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.errors import DrumbeatError
from drumbeat.processes.frames import receive, send_to_parent
from drumbeat.processes.spawn import spawn
from drumbeat.settings import Settings
from drumbeat.settings_loader import load

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat


class ProgramInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `drumbeat run` needs to know of a program."""

    settings: Settings
    tasks: list[str]
    rooms: list[str]
    queues: dict[str, int]
    """Queues that the worker takes, with their weights."""
    task_queues: frozenset[str]
    """Queues that tasks name."""


def describe_program(app: Drumbeat, settings: Settings) -> ProgramInfo:
    """Of an app that is imported here."""
    tasks = app._internals.registry
    return ProgramInfo(
        settings=settings,
        tasks=sorted(task.name for task in tasks),
        rooms=sorted(app._internals.rooms),
        queues=settings.queue_weights(tasks.queues()),
        task_queues=tasks.queues(),
    )


def probe_program(ref: str, flags: Mapping[str, Any]) -> ProgramInfo:
    """Of an app that is not imported here.

    Raises:
        BadInput: it cannot be imported, or its settings are wrong.
    """
    child = spawn("drumbeat.cli.probe:run_probe", {"ref": ref, "flags": dict(flags)}, label=f"drumbeat-probe {ref}")
    with child.link:
        frame = receive(child.link)
    code = child.process.wait()
    if frame is None:
        raise NotDone(f"a process that imported {ref} ended without a reply (exit code {code})")
    reply = msgspec.json.decode(frame, type=ProgramInfo | str)
    if isinstance(reply, str):
        raise BadInput(reply)
    return reply


def run_probe(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """Entry point of the child process."""
    from drumbeat import appref

    reply: ProgramInfo | str
    try:
        app = appref.load(ref)
        found = describe_program(app, app.configure(flags))
        # The weights of all queues: the parent does not know which ones the tasks name.
        settings = load(appref.to_flags(found.settings) | {"queues": found.queues}, {})
        reply = msgspec.structs.replace(found, settings=settings)
    except DrumbeatError as error:
        reply = str(error)
    send_to_parent(link, msgspec.json.encode(reply))
    return 0
