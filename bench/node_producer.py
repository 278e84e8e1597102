"""A library's client on Node, as a process: see bench/apps/producing.cjs."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from bench.contender import STAMP, Producer


class NodeProducer(Producer):
    bulk_chunk = 5_000

    def __init__(self, command: list[str]) -> None:
        self._node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def bulk(self, first: int, count: int) -> float:
        return self._many(STAMP, first, count)

    def keyed(self, first: int, count: int) -> float:
        return self._many(STAMP, first, count, keyed=True)

    def fill(self, count: int, task: str = STAMP) -> None:
        self._many(task, 0, count)

    def fill_at(self, first: int, count: int, due_ns: int) -> None:
        self._many(STAMP, first, count, due_ns=str(due_ns))

    def single(self, first: int, count: int) -> float:
        return self._ask("single", first=first, count=count)

    def paced(self, first: int, gaps: Sequence[float]) -> list[int]:
        return [int(time_ns) for time_ns in self._ask("paced", first=first, gaps=list(gaps))]

    def other(self, number: int) -> None:
        self._ask("other", number=number)

    def unfinished(self) -> int:
        return self._ask("unfinished")

    def close(self) -> None:
        self._ask("close")
        assert self._node.stdin is not None
        self._node.stdin.close()
        self._node.wait(10)

    def _single(self, number: int) -> None:
        self.single(number, 1)

    def _schedule(self, number: int, due_ns: int) -> None:
        self._ask("schedule", number=number, due_ns=str(due_ns))

    def _many(self, task: str, first: int, count: int, **how: Any) -> float:
        return self._ask("many", task=task, first=first, count=count, chunk=self.bulk_chunk, **how)

    def _ask(self, operation: str, **how: Any) -> Any:
        assert self._node.stdin is not None
        self._node.stdin.write(json.dumps({"operation": operation, **how}) + "\n")
        self._node.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._node.stdout is not None
        line = self._node.stdout.readline()
        if not line:
            raise ConnectionError("the client on Node is gone")
        return json.loads(line)
