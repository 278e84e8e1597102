"""What the pages under docs/ show is true: programs run and print what is said, the rest has the types and names it uses,
commands and options exist, settings and error messages are those of the code."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from drumbeat import errors
from drumbeat.cli.program import program as cli
from drumbeat.settings import NAMES, PREFIX, Settings
from drumbeat.settings_loader import resolve
from tests.cli.command import build_environment, start
from tests.examples import pages
from tests.examples.messages import messages, patterns
from tests.meta.project import ROOT

OTHER_COMMANDS = {
    "cp",
    "curl",
    "docker",
    "git",
    "grep",
    "kill",
    "ls",
    "mv",
    "pip",
    "python",
    "rm",
    "sqlite3",
    "systemctl",
    "test",
}

# Drivers that a page may show, and that need not be installed here, nor have types.
DRIVERS = ("aiosqlite", "asyncpg", "django", "psycopg", "sqlalchemy")
# Frameworks and tools of other pages: their own types are not looked at, because reading all of them takes long.
SKIPPED = ("fastapi", "flask", "litestar", "logfire", "numpy", "opentelemetry.sdk", "sentry_sdk", "structlog")
MYPY = "[mypy]\ncheck_untyped_defs = True\n" + "".join(
    f"[mypy-{driver}.*]\nignore_missing_imports = True\n" for driver in DRIVERS
)
MYPY += "".join(f"[mypy-{name}.*]\nfollow_imports = skip\nignore_missing_imports = True\n" for name in SKIPPED)

every_page = pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs of all pages."""
    folder = tmp_path_factory.mktemp("docs")
    for name, text in pages.programs().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def python(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=build_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def to_run() -> list[tuple[Path, pages.Block]]:
    return [(page, block) for page in pages.PAGES for block in pages.blocks(page) if block.mark.startswith("run")]


@pytest.mark.parametrize(("page", "block"), to_run(), ids=lambda value: str(value) if isinstance(value, tuple) else "")
def test_a_program_prints_what_its_page_says(page: Path, block: pages.Block, tmp_path: Path) -> None:
    for name, text in pages.programs().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert block.program is not None, "only a complete program can be run"
    beside = block.mark.partition(" beside ")[2]
    if beside:
        with start("run", beside, folder=tmp_path) as worker:
            done = python(block.program, folder=tmp_path)
            os.kill(worker.pid, signal.SIGTERM)
            told = worker.communicate(timeout=60)[1]
            assert worker.returncode == 0, told
    else:
        done = python(block.program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = pages.prints(page, block)
    if expected is not None:
        pattern = re.escape(expected).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, done.stdout), f"{done.stdout}\n{done.stderr}"


def test_programs_and_fragments_have_the_types_that_they_use(folder: Path) -> None:
    modules = {name: text for page in pages.PAGES for name, text in pages.fragments(page).items()}
    assert len(modules) > 10
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (folder / "mypy.ini").write_text(MYPY, encoding="utf-8")
    found = subprocess.run(
        # What is kept for other options than these would be of no use, here and to them.
        [
            *(sys.executable, "-m", "mypy", f"--config-file={folder}/mypy.ini", "--cache-dir=.mypy_cache/docs"),
            *("--no-error-summary", str(folder)),
        ],
        cwd=ROOT,
        env=build_environment(MYPYPATH=str(folder)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.replace(f"{folder}/", "") == ""
    assert found.returncode == 0, found.stderr


@every_page
def test_a_fragment_that_awaits_nothing_can_be_executed(page: Path, folder: Path) -> None:
    modules = {name: text for name, text in pages.fragments(page).items() if "\ndef fragment" in text}
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    calls = "".join(f"import {name}\n{name}.fragment()\n" for name in modules)
    done = python("-c", calls, folder=folder)
    assert done.returncode == 0, done.stderr


@every_page
def test_every_command_exists_with_its_options(page: Path) -> None:
    for line in pages.commands(page):
        words = shlex.split(line.removesuffix("&").replace("[", "").replace("]", ""), comments=True)
        while "=" in words[0]:
            words.pop(0)
        if words[0] == "drumbeat":
            check_command(words[1:], line)
        elif words[0] == "make":
            targets = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{words[1]}:", targets, re.MULTILINE), line
        else:
            assert words[0] in OTHER_COMMANDS, line


def check_command(words: list[str], line: str) -> None:
    """Follow the words from command to command, and read the options of the last one."""
    command: click.Command = cli
    context = click.Context(cli, info_name="drumbeat")
    while words and isinstance(command, click.Group):
        parser = command.make_parser(context)
        rest = parser.parse_args(list(words))[1]
        if not rest:
            break
        found = command.get_command(context, rest[0])
        assert found is not None, f"`{line}`: no command {rest[0]!r}"
        command, words = found, rest[1:]
        context = click.Context(command, info_name=rest[0], parent=context)
    if not isinstance(command, click.Group):
        command.make_parser(context).parse_args(list(words))


@every_page
def test_every_file_that_is_named_exists(page: Path) -> None:
    for code in pages.codes(page):
        if re.fullmatch(r"(tests|src|bench|examples|docs)/[\w./-]+(::\w+)?", code):
            file, _, name = code.partition("::")
            assert (ROOT / file).exists(), code
            assert not name or re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8")), code


@every_page
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    assert [
        f"{target.name}#{anchor}" for target, anchor in pages.links(page) if anchor not in pages.anchors(target)
    ] == []


def settings_listed() -> dict[str, list[str]]:
    rows = pages.rows(pages.DOCS / "settings.md")
    return {row[0].strip("`"): row for row in rows if row[0].startswith("`") and len(row) == 4}


def test_every_setting_is_listed_with_its_variable_and_nothing_else_is() -> None:
    assert {name: row[1] for name, row in settings_listed().items()} == {
        name: f"`{PREFIX}{name.upper()}`" for name in NAMES
    }


def test_every_setting_is_listed_with_its_default() -> None:
    for name, row in settings_listed().items():
        text = row[2].strip("`")
        shown = {} if text == "none" else {PREFIX + name.upper(): text}
        assert getattr(resolve({}, {}, shown, {}), name) == getattr(resolve({}, {}, {}, {}), name), name
        assert (text == "none") == (getattr(Settings(), name) in (None, "", (), {})), name


TROUBLE = pages.DOCS / "troubleshooting.md"


def shown_messages() -> list[str]:
    """The first cells of tables whose first column is `message`."""
    shown: list[str] = []
    is_of_messages = False
    for first, *_ in pages.rows(TROUBLE):
        if not first.startswith("`"):
            is_of_messages = first == "message"
        elif is_of_messages:
            shown.append(pages.code_of(first))
    return shown


def test_every_message_in_troubleshooting_is_one_that_the_code_can_write() -> None:
    shown = shown_messages()
    assert len(shown) > 50
    assert [each for each in shown if not any(pattern.fullmatch(each) for pattern in patterns())] == []


def test_every_message_that_needs_help_is_in_troubleshooting() -> None:
    shown = shown_messages()
    wanted = [message for message in messages() if message.needs_help]
    assert [each.text for each in wanted if not any(re.fullmatch(each.pattern, text) for text in shown)] == []


def test_every_error_is_explained() -> None:
    page = TROUBLE.read_text(encoding="utf-8")
    kinds = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.DrumbeatError)
    ]
    assert [name for name in kinds if f"`{name}`" not in page] == []
