"""Length-prefixed frames over the socket between a parent and its child."""

import asyncio
import os
import socket
import struct
import sys

from drumbeat.processes.exit_codes import EXIT_ORPHANED

_LENGTH = struct.Struct(">I")


def send(link: socket.socket, frame: bytes) -> None:
    """Write one frame; blocks until the kernel has it."""
    link.sendall(_LENGTH.pack(len(frame)) + frame)


def send_to_parent(link: socket.socket, frame: bytes) -> None:
    """Write one frame from the child to its parent. If the parent is gone, exits with one line on stderr."""
    try:
        send(link, frame)
    except (BrokenPipeError, ConnectionResetError):
        sys.stderr.write(f"{sys.argv[0]}: the process that started this one ({os.getpid()}) is gone: leaving\n")
        sys.exit(EXIT_ORPHANED)


def receive(link: socket.socket) -> bytes | None:
    """Read one frame; None when the other side is gone."""
    head = _receive_exactly(link, _LENGTH.size)
    return None if head is None else _receive_exactly(link, _LENGTH.unpack(head)[0])


def _receive_exactly(link: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        try:
            part = link.recv(min(size, 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class FrameBuffer:
    """Puts frames together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that this piece completes."""
        self._data += data
        frames = []
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            frames.append(bytes(self._data[_LENGTH.size : end]))
            del self._data[:end]
        return frames


class FramePipe:
    """The parent's end of the socket, on its loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, link: socket.socket) -> "FramePipe":
        return cls(*await asyncio.open_unix_connection(sock=link))

    def send(self, frame: bytes) -> None:
        """Never waits: frames to children are few and small."""
        self._writer.write(_LENGTH.pack(len(frame)) + frame)

    async def receive(self) -> bytes | None:
        """The next frame; None when the child's side is closed."""
        try:
            size = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    def abort(self) -> None:
        self._writer.transport.abort()
