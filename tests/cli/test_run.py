"""`drumbeat run`: what it says, what it does, how it ends."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.running import call, running
from tests.waiting import until_sync


def count(folder: Path, state: str) -> int:
    return call("jobs", "list", "--state", state, "--json", folder=folder).stdout.count("\n")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_jobs_run_until_sigterm_and_the_exit_code_is_0(shop: Path, processes: str) -> None:
    before = count(shop, "succeeded")
    call("enqueue", "charge", "customer=1", "--app", "shop:app", folder=shop)
    with running("run", "shop:app", "--processes", processes, "--log-format", "json", folder=shop) as worker:
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
    with running("run", "shop:app", folder=shop) as worker:
        until_sync(lambda: "alive" in call("instances", folder=shop).stdout, deadline=30, what="a living instance")
        os.kill(worker.pid, signal.SIGINT)
        _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "Traceback" not in err


def test_options_of_the_line_overrule_the_program(shop: Path) -> None:
    words = ("run", "shop:app", "--queues", "critical=9,extra", "--concurrency", "3", "--strict", "--drain", "forever")
    with running(*words, folder=shop, env={"DRUMBEAT_CONCURRENCY": "4"}) as worker:
        until_sync(lambda: "alive" in call("instances", folder=shop).stdout, deadline=30, what="a living instance")
        instance = json.loads(call("instances", "--json", folder=shop).stdout)
        os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=30)
    assert instance["concurrency"] == 3
    assert {"critical", "default", "extra"} <= set(instance["queues"])
    assert "queues='critical=9,default=3,extra=3 strict'" in err


def test_the_app_may_come_from_the_environment(shop: Path) -> None:
    with running("run", folder=shop, env={"DRUMBEAT_APP": "shop:app"}) as worker:
        until_sync(lambda: "alive" in call("instances", folder=shop).stdout, deadline=30, what="a living instance")
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0


def test_a_failing_job_is_told_in_the_log(shop: Path) -> None:
    call("enqueue", "give_up", "order=77", "--app", "shop:app", folder=shop)
    before = call("dead", "--json", folder=shop).stdout.count("\n")
    with running("run", "shop:app", folder=shop) as worker:
        until_sync(lambda: call("dead", "--json", folder=shop).stdout.count("\n") > before, deadline=30)
        os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=30)
    assert "ERROR   job is dead" in err
    assert "SkipRetry: never" in err
