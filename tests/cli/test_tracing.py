"""A program that traces, in all its processes: who enqueues, the worker, and the children of the worker."""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.cli.command import build_environment, call, start
from tests.waiting import until_sync

PROGRAM = """
import logging
import os
import signal

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from drumbeat import Drumbeat

file = open(f"spans-{os.getpid()}", "a", buffering=1)
exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))  # only the end of a process flushes
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")
log = logging.getLogger("shop")
app = Drumbeat()


@app.task(queue="critical")
async def order() -> None:
    log.info("ordered")
    await pay.enqueue()


@app.task(pool="process")
def pay() -> None:
    with tracer.start_as_current_span("inner"):
        log.info("paid")


@app.task(pool="process", on_crash="dead", queue="low")
def fall() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with tracer.start_as_current_span("request"):
        order.enqueue_sync()
"""


def spans(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [line for file in folder.glob("spans-*") for line in file.read_text().splitlines()]
    return {span["name"]: span for span in map(json.loads, lines)}


def test_one_trace_goes_through_all_processes_and_their_logs(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env=build_environment(), check=True, timeout=60)
    with start("run", "shop:app", "--log-format", "json", folder=tmp_path) as worker:
        until_sync(
            lambda: call("jobs", "list", "--state", "succeeded", "--json", folder=tmp_path).stdout.count("\n") == 2,
            deadline=60,
            what="both jobs' success",
        )
        os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=30)
    found = spans(tmp_path)
    line = ["request", "send critical", "process critical", "send default", "process default", "inner"]
    assert sorted(found) == sorted(line)
    assert len({span["context"]["trace_id"] for span in found.values()}) == 1
    for above, below in pairwise(line):
        assert found[below]["parent_id"] == found[above]["context"]["span_id"], f"{below} is below {above}"
    records = {entry["message"]: entry for entry in map(json.loads, err.splitlines())}
    for message, task, queue, span in (
        ("ordered", "order", "critical", "process critical"),
        ("paid", "pay", "default", "inner"),
    ):
        entry = records[message]
        assert (entry["task"], entry["queue"], entry["attempt"]) == (task, queue, 1)
        assert entry["job"] == found[f"process {queue}"]["attributes"]["messaging.message.id"]
        context = found[span]["context"]
        assert (f"0x{entry['trace_id']}", f"0x{entry['span_id']}") == (context["trace_id"], context["span_id"])
    assert records["ordered"]["process"] != records["paid"]["process"]


def test_a_run_whose_process_was_killed_has_its_span(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    assert call("enqueue", "fall", "--app", "shop:app", folder=tmp_path).returncode == 0
    with start("run", "shop:app", "--processes", "2", folder=tmp_path) as worker:
        until_sync(
            lambda: "fall" in call("dead", "--json", folder=tmp_path).stdout, deadline=60, what="the dead letter"
        )
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0
    found = spans(tmp_path)
    process = found["process low"]
    assert process["parent_id"] == found["send low"]["context"]["span_id"]
    assert (process["attributes"]["drumbeat.outcome"], process["status"]["status_code"]) == ("crashed", "ERROR")
    assert process["attributes"]["error.type"] == "ProcessDied"


UNTRACED = """
import asyncio
import sys

from drumbeat import Drumbeat

app = Drumbeat(log_format="json")


@app.task
async def greet(name: str) -> str:
    return f"Hello {name}"


async def main() -> None:
    async with app, asyncio.TaskGroup() as group:
        worker = group.create_task(app.serve())
        job = await greet.enqueue("Ada")
        print(await job.result(timeout=30))
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
    print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_a_program_that_does_not_trace_imports_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(UNTRACED)
    done = subprocess.run(
        [sys.executable, "plain.py"],
        cwd=tmp_path,
        env=build_environment(),
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["Hello Ada", "[]"]
