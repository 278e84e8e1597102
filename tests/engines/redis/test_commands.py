"""The command line on Redis: what is true of its admin on a file is true here as well."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli import test_resources
from tests.cli.command import call, invoke, read_refusal, start
from tests.cli.conftest import SHOP, have_all_ended
from tests.cli.test_resources import letters
from tests.conftest import SERVERS
from tests.engines.redis.conftest import KINDS
from tests.servers.redis import Databases
from tests.waiting import until_sync

__all__ = ["letters"]

# They look at the file.
OF_FILES = {
    "test_dead_letters_are_discarded",
    "test_the_store_may_be_named_by_option_before_or_after_the_verb_or_by_environment",
}
globals().update(
    {name: test for name, test in vars(test_resources).items() if name.startswith("test_") and name not in OF_FILES}
)


def number_of(url: str) -> int:
    return int(url.rpartition("/")[2])


@pytest.fixture(scope="module", params=KINDS)
def used_shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Databases, int]:
    """The database of a shop whose jobs have had every fate."""
    databases = SERVERS[request.param]
    assert isinstance(databases, Databases)
    url, folder = databases.fresh_url(), tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    (folder / ".env").write_text(f"DRUMBEAT_URL={url}\n")
    for words in (
        ["charge", "customer=42", "amount=9.90", "password=hush"],
        ["refuse", "order=1", "--key", "a", "--unique"],
        ["refuse", "order=2"],
        ["give_up", "order=3"],
        ["charge", "customer=7", "--delay", "1h", "--key", "later"],
    ):
        queued = call("enqueue", *words, "--app", "shop:app", folder=folder)
        assert queued.returncode == 0, queued.stderr
    with start("run", "shop:app", folder=folder) as worker:
        until_sync(lambda: have_all_ended(url), deadline=30)
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0
    return databases, number_of(url)


@pytest.fixture
def shop(used_shop: tuple[Databases, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with shop.py, and settings that name a copy of that database; it is also the current folder."""
    databases, used = used_shop
    url = databases.fresh_url()
    for key in databases.server.ask("KEYS", "*", database=used):
        databases.server.ask("COPY", key, key, "DB", number_of(url), database=used)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / ".env").write_text(f"DRUMBEAT_URL={url}\n")
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRUMBEAT_"):
            monkeypatch.delenv(name)
    return tmp_path


def test_migrate_makes_a_store_then_has_nothing_to_do(url: str) -> None:
    check = invoke("migrate", url, "--check")
    assert (check.exit_code, check.stdout) == (1, "")
    assert invoke("migrate", url).stdout == f"{url}: version 0 -> 1\n"
    assert invoke("migrate", url).stdout.endswith(", nothing to do\n")
    assert json.loads(invoke("migrate", url, "--check", "--json").stdout)["up_to_date"] is True
    assert "only PostgreSQL has a script" in read_refusal(invoke("migrate", url, "--sql"))
