"""The program as a whole: its help, its speed, its silence, its exit codes."""

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumbeat.glossary import TERMS, find, meaning_of
from tests.cli.command import PROGRAM, build_environment, call, invoke, read_refusal, start
from tests.waiting import until_sync

NOUNS = ["jobs", "dead", "queues", "tasks", "schedules", "instances"]


def test_help_lists_every_command_in_groups() -> None:
    shown = invoke("--help").stdout
    assert shown.index("Start:") < shown.index("  demo") < shown.index("Look and act:") < shown.index("  instances")
    for name in ["run", "migrate", "enqueue", *NOUNS]:
        assert re.search(rf"^  {name}  +\w", shown, re.MULTILINE), name


def test_no_command_shows_the_help() -> None:
    assert invoke().stdout == invoke("--help").stdout


@pytest.mark.parametrize("command", ["demo", "run", "migrate", "enqueue", *NOUNS])
def test_every_command_has_help(command: str) -> None:
    shown = invoke(command, "--help")
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"Usage: drumbeat {command}")


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_and_verb_takes_the_same_options(noun: str) -> None:
    verbs = re.findall(r"^  ([a-z-]+)  ", invoke(noun, "--help").stdout.split("Commands:")[1], re.MULTILINE)
    assert "list" in verbs
    for words in [[noun], *([noun, verb] for verb in verbs)]:
        shown = invoke(*words, "--help").stdout
        assert all(option in shown for option in ("--json", "--url", "--app", "--namespace")), words


def test_an_unknown_command_is_one_line_that_names_a_near_one() -> None:
    assert read_refusal(invoke("job")) == "no command 'job'; did you mean `drumbeat jobs`? (see `drumbeat --help`)"
    assert "`drumbeat dead replay`" in read_refusal(invoke("dead", "reply"))


def test_an_unknown_option_is_one_line() -> None:
    assert "no such option" in read_refusal(invoke("jobs", "list", "--stat", "x")).lower()


def test_the_module_and_the_script_are_the_same_program() -> None:
    script = Path(sys.executable).with_name("drumbeat")
    by_script = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    by_module = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    assert by_script == by_module
    assert re.fullmatch(r"drumbeat \d+\.\d+\.\d+\n", by_module)


def test_help_does_not_load_what_it_does_not_need() -> None:
    program = "import sys; from drumbeat.cli.program import program; program.main(['--help'], standalone_mode=False);"
    program += "print([name for name in ('rich', 'sqlite3', 'drumbeat.worker', 'uvloop') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_help_is_quick(tmp_path: Path) -> None:
    """The least of several runs, against the start of Python itself, in turn: the machine may be busy. With compiled modules,
    as an installed package has them, also where the environment forbids to write them beside the source."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def user_seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(command, capture_output=True, check=True, env=environment)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    starts, helps = [], []
    for _ in range(8):
        starts.append(user_seconds(sys.executable, "-c", "import asyncio, msgspec, click"))
        helps.append(user_seconds(*PROGRAM, "--help"))
    assert min(helps) < max(0.150, 2.5 * min(starts))


def test_a_reader_that_goes_away_is_no_error(shop: Path) -> None:
    command = f"'{sys.executable}' -m drumbeat jobs list --json | head -c 1; echo; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=shop, env=build_environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "{"


def test_a_reader_that_never_was_is_no_error(shop: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        done = subprocess.run(
            [*PROGRAM, "jobs", "list"],
            cwd=shop,
            env=build_environment(),
            stdout=nobody,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_is_silent(tmp_path: Path) -> None:
    """In a command that waits: here for the write lock, which another process holds."""
    import fcntl

    call("migrate", folder=tmp_path)
    with (tmp_path / "drumbeat.db-lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        with start("queues", "list", folder=tmp_path) as waiting:
            until_sync(lambda: _wants_write_lock(waiting.pid), what="a wait for the write lock")
            os.kill(waiting.pid, signal.SIGINT)
            out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out, err) == (130, "", "")


def _wants_write_lock(pid: int) -> bool:
    """Some thread of the process waits in flock, as the kernel lists it."""
    return any(f" {pid} " in line and "->" in line for line in Path("/proc/locks").read_text().splitlines())


def test_debug_shows_the_traceback_of_a_refusal(tmp_path: Path) -> None:
    done = call("jobs", "show", "x", folder=tmp_path, env={"DRUMBEAT_DEBUG": "1"})
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "drumbeat: no job x"


def test_the_glossary_explains_all_terms_or_those_that_contain_a_word() -> None:
    every = invoke("glossary")
    assert every.exit_code == 0, every.stderr
    assert every.stdout.splitlines() == [f"{term.name}: {term.meaning}" for term in TERMS]
    some = invoke("glossary", "DEAD")
    assert [line.split(":")[0] for line in some.stdout.splitlines()] == [term.name for term in find("dead")]
    assert f"dead letter: {meaning_of('dead letter')}" in some.stdout
    assert "no term of the glossary contains 'zebra'" in read_refusal(invoke("glossary", "zebra"))
