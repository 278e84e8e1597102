"""`drumbeat run`: what it says, what it does, how it ends."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.command import call, invoke, read_refusal, start
from tests.waiting import until_sync


def ask(*words: str, folder: Path) -> str:
    """What a command says of the store of this folder: in this process, because those who wait ask many times."""
    return invoke(*words, "--json", "--url", f"sqlite:///{folder / 'drumbeat.db'}").stdout


def count(folder: Path, state: str) -> int:
    return ask("jobs", "list", "--state", state, folder=folder).count("\n")


def ready(folder: Path, queue: str) -> int:
    found: int = json.loads(ask("queues", "show", queue, folder=folder))["ready"]
    return found


@pytest.mark.parametrize("processes", ["1", "2"])
def test_jobs_run_until_sigterm_and_the_exit_code_is_0(shop: Path, processes: str) -> None:
    before = count(shop, "succeeded")
    call("enqueue", "charge", "customer=1", "--app", "shop:app", folder=shop)
    with start("run", "shop:app", "--processes", processes, "--log-format", "json", folder=shop) as worker:
        until_sync(lambda: count(shop, "succeeded") == before + 1, deadline=30, what="the job's success")
        os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    lines = [json.loads(line) for line in err.splitlines()]
    assert lines[0]["message"] == "drumbeat starts"
    assert {name: lines[0][name] for name in ("app", "store", "concurrency", "processes")} == {
        "app": "shop:app",
        "store": f"sqlite:///{shop / 'drumbeat.db'}",
        "concurrency": 10,
        "processes": int(processes),
    }
    assert lines[0]["queues"] == "critical=6,default=3,mail=2"


def test_ctrl_c_drains_too(shop: Path) -> None:
    with start("run", "shop:app", folder=shop) as worker:
        until_sync(lambda: instances(shop), deadline=30, what="a living instance")
        os.kill(worker.pid, signal.SIGINT)
        _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "Traceback" not in err


def test_options_of_the_line_overrule_the_program(shop: Path) -> None:
    words = ("run", "shop:app", "--queues", "critical=9,extra", "--concurrency", "3", "--strict", "--drain", "forever")
    with start(*words, folder=shop, env={"DRUMBEAT_CONCURRENCY": "4"}) as worker:
        until_sync(lambda: instances(shop), deadline=30, what="a living instance")
        instance = json.loads(call("instances", "--json", folder=shop).stdout)
        os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=30)
    assert instance["concurrency"] == 3
    assert sorted(instance["queues"]) == ["critical", "extra"]
    assert "queues='critical=9,extra=3 strict'" in err
    assert "queues of this app that this worker does not take left_queues=default" in err


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_can_be_restricted_to_some_queues(shop: Path, processes: str) -> None:
    for words in (("give_up", "order=1"), ("charge", "customer=1")):
        call("enqueue", *words, "--app", "shop:app", folder=shop)
    with start("run", "shop:app", "--queues", "mail,critical", "--processes", processes, folder=shop) as worker:
        until_sync(lambda: ready(shop, "critical") == 0, deadline=30, what="the critical job to be taken")
        assert ready(shop, "default") == 1
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0


def test_the_app_may_come_from_the_environment(shop: Path) -> None:
    with start("run", folder=shop, env={"DRUMBEAT_APP": "shop:app"}) as worker:
        until_sync(lambda: instances(shop), deadline=30, what="a living instance")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0


def test_a_failing_job_is_logged(shop: Path) -> None:
    call("enqueue", "give_up", "order=77", "--app", "shop:app", folder=shop)
    before = ask("dead", folder=shop).count("\n")
    with start("run", "shop:app", folder=shop) as worker:
        until_sync(lambda: ask("dead", folder=shop).count("\n") > before, deadline=30)
        os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=30)
    assert "ERROR   job is dead" in err
    assert "SkipRetry: never" in err


def test_the_program_may_set_several_processes_itself(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(
        "from drumbeat import Drumbeat\napp = Drumbeat(processes=2)\n@app.task\nasync def a() -> None: ...\n"
    )
    with start("run", "pair:app", "--concurrency", "3", folder=tmp_path) as supervisor:
        until_sync(lambda: len(instances(tmp_path)) == 2, deadline=30, what="two living instances")
        found = instances(tmp_path)
        os.kill(supervisor.pid, signal.SIGTERM)
        _, err = supervisor.communicate(timeout=30)
    assert supervisor.returncode == 0
    assert supervisor.pid not in {instance["pid"] for instance in found}
    assert {instance["concurrency"] for instance in found} == {3}
    assert "processes=2" in err


def instances(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in ask("instances", folder=folder).splitlines()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("from drumbeat import Drumbeat\napp = Drumbeat('mysql://x')", "mysql"),
        (
            "from drumbeat import Drumbeat\napp = Drumbeat(heartbeat='often')",
            "setting heartbeat (Drumbeat(heartbeat=))",
        ),
    ],
)
def test_a_program_that_cannot_start_is_reported_once_for_all_processes(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "program.py").write_text(text)
    assert message in read_refusal(call("run", "program:app", "--processes", "2", folder=tmp_path))


def test_a_supervisor_does_not_import_the_program(tmp_path: Path) -> None:
    """A program that kills whoever imports it does not take the supervisor with it."""
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = call("run", "deadly:app", "--processes", "2", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "drumbeat: a process that imported deadly:app ended without a reply (exit code -9)\n"
