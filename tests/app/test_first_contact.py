"""What people try first, and expect to work."""

from importlib.metadata import version
from typing import Any

import pytest

import drumbeat
from drumbeat import Drumbeat
from drumbeat.errors import ConfigError, SchemaOutOfDate
from drumbeat.tasks.task import AsyncTask
from tests.conftest import SERVERS
from tests.servers.postgres import PostgresServer

CELL = """
@app.task
async def greet(name: str) -> str:
    return {text!r} + name
"""


def run_cell(app: Drumbeat, file: str, text: str) -> Any:
    names: dict[str, Any] = {"app": app}
    exec(compile(CELL.format(text=text), file, "exec"), names)
    return names["greet"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("<stdin>", "<stdin>", id="shell"),
        pytest.param("<ipython-input-1-5c0f>", "<ipython-input-7-99aa>", id="ipython"),
        pytest.param("/tmp/ipykernel_77/11.py", "/tmp/ipykernel_77/22.py", id="notebook"),
        pytest.param("/srv/shop.py", "/srv/shop.py", id="reload"),
    ],
)
async def test_a_task_that_is_registered_again_replaces_the_first(first: str, second: str) -> None:
    app = Drumbeat("sqlite:////nowhere/x.db")
    run_cell(app, first, "Hi ")
    greet = run_cell(app, second, "Hello ")
    assert app._internals.registry["greet"] is greet
    assert isinstance(greet, AsyncTask)
    assert await greet("Ada") == "Hello Ada"


def test_another_task_of_the_same_name_is_refused() -> None:
    app = Drumbeat("sqlite:////nowhere/x.db")
    run_cell(app, "/srv/shop.py", "Hi ")
    for other in ("/srv/other.py", "<stdin>"):
        with pytest.raises(ConfigError, match="two tasks named 'greet'"):
            run_cell(app, other, "Hello ")


def test_the_version_is_told() -> None:
    assert drumbeat.__version__ == version("drumbeat")
    assert not hasattr(drumbeat, "version")


async def test_an_app_migrates_its_own_store() -> None:
    server = SERVERS["postgres"].server
    assert isinstance(server, PostgresServer)
    url = await server.create_database("first_contact")
    app = Drumbeat(url.replace("postgresql://", "postgresql+asyncpg://"))  # as SQLAlchemy writes it
    try:
        with pytest.raises(SchemaOutOfDate):
            await app.jobs.list()
        await app.migrate()
        await app.migrate()
        assert await app.jobs.list() == []
    finally:
        await app.close()
        await server.drop_database("first_contact")
