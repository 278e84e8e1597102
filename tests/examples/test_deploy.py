"""examples/deploy: its commands are those of the command line, its probes are where the workers answer, its limits fit."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from drumbeat.cli.program import program
from drumbeat.settings import NAMES, Settings
from drumbeat.settings_loader import resolve
from drumbeat.supervisor import KILL_DELAY
from tests.cli.command import call

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"


def parse(words: list[str]) -> Settings:
    """The settings of this command; a word that it does not know is an error."""
    command = program.get_command(click.Context(program), words[0])
    assert command is not None, words
    given = command.make_context(words[0], words[1:]).params
    flags = {name: value for name, value in given.items() if name in NAMES and value is not None}
    return resolve(flags, {}, {}, {})


def documents() -> dict[tuple[str, str], Any]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod_of(deployment: str) -> Any:
    return documents()["Deployment", deployment]["spec"]["template"]["spec"]


def test_the_manifests_of_kubernetes_fit_their_workers() -> None:
    [migration] = documents()["Job", "shop-migrate-1"]["spec"]["template"]["spec"]["containers"]
    parse(migration["args"])
    pod = pod_of("shop-worker")
    [worker] = pod["containers"]
    settings = parse(worker["args"])
    assert settings.drain is not None and pod["terminationGracePeriodSeconds"] > settings.drain + KILL_DELAY
    [port] = worker["ports"]
    assert settings.health == f"0.0.0.0:{port['containerPort']}"
    probes = {name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert probes == {
        name: {"path": path, "port": port["name"]}
        for name, path in (("startup", "/live"), ("liveness", "/live"), ("readiness", "/ready"))
    }
    memory = int(worker["resources"]["limits"]["memory"].removesuffix("Mi")) * 2**20
    assert settings.max_memory is not None and settings.max_memory < memory
    [board] = pod_of("shop-dashboard")["containers"]
    parse(board["args"])
    for each in (worker, board):
        assert each["securityContext"]["readOnlyRootFilesystem"]


def test_it_scales_by_a_metric_that_exists() -> None:
    [metric] = documents()["HorizontalPodAutoscaler", "shop-worker"]["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    assert (
        f"`{name}`" in (DEPLOY.parents[1] / "docs" / "metrics.md").read_text()
    )  # a test compares that page with /metrics


def test_compose_starts_what_there_is() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name in ("migrate", "worker", "dashboard"):
        parse(services[name]["command"])
    worker = services["worker"]
    settings = parse(worker["command"])
    assert settings.drain is not None
    assert int(worker["stop_grace_period"].removesuffix("s")) > settings.drain + KILL_DELAY
    assert str(settings.health).replace("0.0.0.0", "http://127.0.0.1") in worker["healthcheck"]["test"][-1]


def test_the_image_runs_a_worker(tmp_path: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    words = json.loads(re.findall(r"^CMD (.*)$", text, re.M)[0])
    assert re.findall(r"^ENTRYPOINT (.*)$", text, re.M) == ['["drumbeat"]']
    assert parse(words).health == "0.0.0.0:8080"
    shutil.copy(DEPLOY / "shop.py", tmp_path)
    done = call(*words, "--burst", "--health", "127.0.0.1:0", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[0])["message"] == "health endpoint is open"


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda path: path.name)
def test_units_of_systemd(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    found = re.search(r"^ExecStart=(\S+/drumbeat) (.*)$", text, re.M)
    assert found is not None
    settings = parse(found[2].split())
    if "Type=notify" in text:
        stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)
        assert stop is not None and settings.drain is not None and int(stop[1]) > settings.drain + KILL_DELAY
    if (verify := shutil.which("systemd-analyze")) is None:
        return
    # It looks for the program, the folder and the user on this machine.
    local = text.replace(found[1], sys.executable).replace("/srv/shop", str(tmp_path)).replace("User=shop", "User=root")
    (tmp_path / unit.name).write_text(local)
    checked = subprocess.run([verify, "verify", tmp_path / unit.name], capture_output=True, text=True, check=False)
    told = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert told == []
