"""The contract as others run it: on an engine of their own, by the command of the page."""

import subprocess
import sys

import pytest

from drumbeat.errors import ConfigError
from drumbeat.testing.contract import run_contract
from tests.meta.project import ROOT

SOME = ("-q", "-k", "test_claim or test_rules_uniqueness", "-p", "no:randomly")


def run(opener: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "drumbeat.testing.contract", f"tests.apps.own_engine:{opener}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_engine_that_keeps_the_contract_passes_it() -> None:
    done = run("open_store", *SOME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "[yours]" not in done.stdout


def test_an_engine_that_does_not_is_told_which_rule_it_breaks() -> None:
    done = run("open_forgetful", "-q", "-x", "-k", "test_claim")
    assert done.returncode == 1
    assert "FAILED" in done.stdout and "test_claim.py" in done.stdout


def test_an_engine_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match="'nowhere:open_store' must be module:function"):
        run_contract("nowhere:open_store")
    with pytest.raises(ConfigError, match=r"tests\.testing\.test_contract has no function 'nothing'$"):
        run_contract("tests.testing.test_contract:nothing")
