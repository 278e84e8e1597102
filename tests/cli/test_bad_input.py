"""Bad input: one clear line that says what to do, exit code 2, no traceback, and nothing is lost."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.cli.command import call, invoke, read_refusal


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRUMBEAT_"):
            monkeypatch.delenv(name)


def test_a_missing_module(tmp_path: Path) -> None:
    message = read_refusal(call("run", "nowhere:app", folder=tmp_path))
    assert "there is no module 'nowhere' in" in message


def test_a_module_with_an_error_of_its_own_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import drumbeat\n1 / 0\n")
    assert "ZeroDivisionError: division by zero" in read_refusal(call("run", "broken:app", folder=tmp_path))
    assert f"({tmp_path / 'broken.py'}:2)" in read_refusal(call("tasks", "--app", "broken:app", folder=tmp_path))


def test_a_module_with_a_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "typo.py").write_text("def (:\n")
    assert f"{tmp_path / 'typo.py'}:1" in read_refusal(call("run", "typo:app", folder=tmp_path))


def test_a_module_without_that_app_names_those_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("from drumbeat import Drumbeat\nmine = Drumbeat()\n")
    assert "there is mine" in read_refusal(call("run", "program:app", folder=tmp_path))


def test_a_file_instead_of_a_module(tmp_path: Path) -> None:
    assert "write the module's name, program:app" in read_refusal(call("run", "program.py", folder=tmp_path))


def test_no_app_where_one_is_needed() -> None:
    assert "`drumbeat run module:attr`" in read_refusal(invoke("run"))
    assert "Add --app module:attr" in read_refusal(invoke("enqueue", "charge"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "write sqlite:///jobs.db"),
        ("mysql://x/y", "is not a store: use sqlite:///"),
        ("sqlite://", "names no SQLite file"),
        ("sqlite:///no/such/folder/x.db", "does not exist: make it, or choose another"),
        ("sqlite:///.", "is a folder: name a file in it"),
    ],
)
def test_a_wrong_url(url: str, message: str) -> None:
    assert message in read_refusal(invoke("jobs", "list", "--url", url))
    assert message in read_refusal(invoke("migrate", url))


def test_a_wrong_url_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMBEAT_URL", "nonsense")
    assert "environment DRUMBEAT_URL" in read_refusal(invoke("jobs"))


def test_a_password_in_a_wrong_url_is_not_repeated() -> None:
    assert "hush" not in read_refusal(invoke("jobs", "--url", "mysql://me:hush@host/db"))


def test_an_unwritable_path() -> None:
    assert "cannot be written" in read_refusal(invoke("jobs", "list", "--url", "sqlite:////proc/drumbeat.db"))


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    precious = "This is a novel, not a database. " * 100
    (tmp_path / "novel.txt").write_text(precious)
    assert "not a SQLite database" in read_refusal(invoke("jobs", "--url", "sqlite:///novel.txt"))
    assert (tmp_path / "novel.txt").read_text() == precious


def test_a_newer_schema_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    assert invoke("migrate").exit_code == 0
    with sqlite3.connect(tmp_path / "drumbeat.db") as db:
        db.execute("UPDATE drumbeat_meta SET value = 99 WHERE name IN ('version', 'oldest_code')")
    before = (tmp_path / "drumbeat.db").read_bytes()
    for words in (["jobs"], ["migrate"], ["migrate", "--check"]):
        assert "pip install --upgrade drumbeat" in read_refusal(invoke(*words))
    with sqlite3.connect(tmp_path / "drumbeat.db") as db:
        assert db.execute("SELECT count(*) FROM drumbeat_meta WHERE value = 99").fetchone() == (2,)
    assert len((tmp_path / "drumbeat.db").read_bytes()) == len(before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["jobs", "list", "--state", "odd"],
            "there is no state 'odd': use pending, running, succeeded, dead, cancelled",
        ),
        (["jobs", "list", "--since", "yesterday"], "'yesterday' is no timestamp"),
        (["jobs", "list", "--queue", "nope"], "there is no queue 'nope'"),
        (["jobs", "list", "--queue", "no/pe"], "use 1 to 100 letters, digits"),
        (["jobs", "list", "--task", "nope"], "no task 'nope' is registered"),
        (["jobs", "list", "--limit", "0"], "'--limit'"),
        (["jobs", "list", "--before", "x"], "before must be the id of a job"),
        (["jobs", "show", "x"], "no job x"),
        (["jobs", "show", "01a1de5c-7d50-7fca-8989-123557b12762"], "no job 01a1de5c-7d50-7fca-8989-123557b12762"),
        (["jobs", "cancel"], "say which jobs to cancel"),
        (["jobs", "cancel", "--task", "charge"], "say which jobs to cancel"),
        (["jobs", "run-now", "x"], "no job x"),
        (["dead", "show", "x"], "no job x"),
        (["dead", "replay"], "say which dead letters"),
        (["dead", "replay", "x"], "no job x"),
        (["dead", "discard", "--all", "--task", "charge"], "say which dead letters"),
        (["queues", "pause", "nope"], "--app module:attr"),
        (["tasks", "show", "nope"], "no task 'nope'"),
        (["instances", "show", "nope"], "there is no instance 'nope'"),
        (["run", "a:b", "--drain", "5x"], "setting drain (flag --drain)"),
        (["run", "a:b", "--concurrency", "many"], "setting concurrency (flag --concurrency)"),
        (["run", "a:b", "--queues", "critical=lots"], "setting queues (flag --queues)"),
        (["run", "a:b", "--role", "boss"], "'--role'"),
        (["enqueue", "charge", "--delay", "5x"], "'5x' is no duration: write 90"),
        (["enqueue", "charge", "--at", "2026-11-15T10:00"], "has no timezone"),
        (["enqueue", "charge", "--at", "soon"], "is no timestamp"),
        (["enqueue", "charge", "--priority", "10"], "'--priority'"),
        (["jobs", "--namespace", "1a"], "namespace"),
    ],
)
def test_words_that_mean_nothing(words: list[str], message: str) -> None:
    assert message in read_refusal(invoke(*words))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_on_a_wrong_store_says_just_that(tmp_path: Path, processes: str) -> None:
    (tmp_path / "program.py").write_text("from drumbeat import Drumbeat\napp = Drumbeat()\n")
    (tmp_path / "novel.txt").write_text("This is a novel, not a database. " * 100)
    for url, message in [("sqlite:///novel.txt", "not a SQLite database"), ("sqlite:///no/such.db", "does not exist")]:
        assert message in read_refusal(
            call("run", "program:app", "--url", url, "--processes", processes, folder=tmp_path)
        )


def test_a_wrong_line_in_env_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DRUMBEAT_HEARTBEAT=often\n")
    assert "setting heartbeat (.env DRUMBEAT_HEARTBEAT)" in read_refusal(invoke("jobs"))


def test_a_store_that_cannot_answer_is_exit_code_1(tmp_path: Path) -> None:
    """A disk without room: the request was sound, and may be repeated."""
    (tmp_path / "shop.py").write_text(
        "import drumbeat.store.sqlite.file_checks as place\n"
        "place.DiskSpaceGuard.__init__.__kwdefaults__['min_free_bytes'] = 1 << 60\n"
        "import drumbeat.store.sqlite as engine\n"
        "engine.SqliteStore.open.__func__.__kwdefaults__['min_free_bytes'] = 1 << 60\n"
        "from drumbeat import Drumbeat\napp = Drumbeat()\n"
        "@app.task\nasync def charge() -> None: ...\n"
    )
    done = call("enqueue", "charge", "--app", "shop:app", folder=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "jobs are accepted again" in done.stderr


NOT_TEXT = os.fsdecode(b"a\xff")


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "show", NOT_TEXT),
        ("jobs", "--url", f"sqlite:///{NOT_TEXT}.db"),
        ("dead", "discard", NOT_TEXT),
        ("enqueue", "charge", f"customer={NOT_TEXT}", "--app", "shop:app"),
        ("run", NOT_TEXT),
        (NOT_TEXT,),
    ],
)
def test_arguments_that_are_no_text(words: tuple[str, ...]) -> None:
    number = 1 + next(place for place, word in enumerate(words) if NOT_TEXT in word)
    assert read_refusal(invoke(*words)) == f"argument {number} of the command line is not UTF-8: write it in UTF-8"


@pytest.mark.parametrize("name", ["URL", "QUEUES", "APP", "NAMESPACE", "DASHBOARD_TOKENS"])
def test_settings_that_are_no_text(tmp_path: Path, name: str) -> None:
    message = read_refusal(call("jobs", folder=tmp_path, env={f"DRUMBEAT_{name}": NOT_TEXT}))
    assert message == f"setting {name.lower()} (environment DRUMBEAT_{name}) is not UTF-8: write it in UTF-8"


def test_a_settings_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"DRUMBEAT_URL=sqlite:///\xff.db\n")
    assert read_refusal(invoke("jobs")).startswith(".env cannot be read: it is not UTF-8 (line 1)")


def test_a_program_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"name = '\xe9'\n")
    assert "latin.py" in read_refusal(call("run", "latin:app", folder=tmp_path))
