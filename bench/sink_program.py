"""What `bench.dispatch` and the worker that it starts share: a program whose jobs are sent, and a book of acknowledgements.

The book is a file with a line for each batch: when it was handed to the sink, when the broker had acknowledged it, how many
messages it had, and the CPU time that the process had used by then.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from drumbeat import Drumbeat
from drumbeat.sinks import Clock, KafkaSink, Message, Outlet, RedisStreamSink, Sink

URL, SINK, BROKER, TOPIC, BOOK = "DRUMBEAT_URL", "BENCH_SINK", "BENCH_BROKER", "BENCH_TOPIC", "BENCH_BOOK"
QUEUE = "triggers"


class Batch(NamedTuple):
    began_ns: int
    acknowledged_ns: int
    count: int
    cpu_ns: int


class RecordingSink:
    """A sink that writes into the book what its own one does."""

    def __init__(self, sink: Sink, book: str) -> None:
        self._sink = sink
        self._book = book
        self.batch = sink.batch

    def connect(self, clock: Clock) -> Outlet:
        return RecordingOutlet(self._sink.connect(clock), self._book)


class RecordingOutlet:
    def __init__(self, outlet: Outlet, book: str) -> None:
        self._outlet = outlet
        self._book = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        began = time.time_ns()
        answers = await self._outlet.send(messages)
        acknowledged = sum(answer is None for answer in answers)
        os.write(self._book, b"%d %d %d %d\n" % (began, time.time_ns(), acknowledged, time.process_time_ns()))
        return answers

    async def close(self) -> None:
        await self._outlet.close()
        os.close(self._book)


def read_book(path: Path) -> list[Batch]:
    if not path.exists():
        return []
    return [Batch(*map(int, line.split())) for line in path.read_text().splitlines() if line.count(" ") == 3]


def program(environment: Mapping[str, str]) -> tuple[Drumbeat, Any]:
    """The app, and the task whose jobs are sent."""
    broker, topic = environment[BROKER], environment[TOPIC]
    sink: Sink
    if environment[SINK] == "redis":
        sink = RedisStreamSink(stream=topic, url=broker)
    else:
        sink = KafkaSink(topic=topic, servers=broker)
    app = Drumbeat(environment[URL], name="dispatch")
    task = app.forward("order.reminder", to=RecordingSink(sink, environment[BOOK]), type=dict[str, int], queue=QUEUE)
    return app, task
