"""Values of keys that are named like a secret become dots; everything else stays, to the letter."""

import json
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat import Drumbeat
from drumbeat.cli.formatting import format_arguments
from drumbeat.redaction import redact_json
from tests.web.conftest import OpenBrowser


def redacted(text: str) -> str:
    return redact_json(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"to": "ada", "password": "x"}', '{"to": "ada", "password": "•••"}'),
        ('{"Api_Key":17, "n": 9007199254740993}', '{"Api_Key":"•••", "n": 9007199254740993}'),
        ('{"secret": {"a": ["}", {"b": 1}]}, "c": 1.10}', '{"secret": "•••", "c": 1.10}'),
        (
            '[{"authorization": null}, {"x": [{"cookie": "a\\"b"}]}]',
            '[{"authorization": "•••"}, {"x": [{"cookie": "•••"}]}]',
        ),
        ('{"\\u0070assword": "x"}', '{"\\u0070assword": "•••"}'),
        ('{"note": "my password: \\"x\\""}', '{"note": "my password: \\"x\\""}'),
        ('"password"', '"password"'),
        ("{}", "{}"),
    ],
)
def test_secrets_are_dots(text: str, shown: str) -> None:
    assert redacted(text) == shown


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "password", "b:", '"token"', "x"]) | st.text(max_size=4), inner, max_size=4
        )
    ),
    max_leaves=15,
)


def hidden(value: object) -> object:
    if isinstance(value, dict):
        return {key: "•••" if "password" in key or "token" in key else hidden(each) for key, each in value.items()}
    return [hidden(each) for each in value] if isinstance(value, list) else value


@given(values, st.sampled_from([None, 2]))
def test_it_is_what_decoding_and_hiding_would_give(value: object, indent: int | None) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        assert json.loads(redacted(text)) == hidden(value)


@given(st.text(alphabet='{}[]",:\\ apswordtken1'))
def test_what_is_no_json_breaks_nothing(text: str) -> None:
    assert isinstance(redacted(text), str)


@pytest.mark.parametrize(
    "text", ['{"password": "abc', '{"secret": {"a": ["abc", ', '{"token": abc', '{"token": "abc\\']
)
def test_text_that_breaks_off_shows_no_secret_either(text: str) -> None:
    assert "abc" not in redacted(text)


@pytest.mark.parametrize(
    "name",
    [
        "passphrase",
        "db_pwd",
        "API-Key",
        "x-api-key",
        "private-key",
        "access_key",
        "signingKey",
        "authorisation",
        "set-cookie",
    ],
)
def test_secrets_go_by_the_same_names_on_every_screen(name: str) -> None:
    text = json.dumps({name: "hunter2", "n": 1})
    assert "hunter2" not in redacted(text)
    assert "hunter2" not in format_arguments(text)
    assert "n=1" in format_arguments(text)


@pytest.mark.parametrize(
    "path", ["/api/v1/schedules", "/api/v1/schedules/nightly", "/schedules/nightly", "/schedules/nightly/edit"]
)
async def test_arguments_of_a_schedule_are_shown_without_secrets(
    app: Drumbeat, api: httpx.AsyncClient, path: str
) -> None:
    await login_schedule(app, api)
    page = await api.get(path)
    assert page.status_code == 200
    assert ("hunter2" in page.text, "•••" in page.text, "ada" in page.text) == (False, True, True)


async def test_what_was_said_of_a_schedule_is_in_the_audit_without_secrets(
    app: Drumbeat, api: httpx.AsyncClient
) -> None:
    await login_schedule(app, api)
    await api.put("/api/v1/schedules/nightly", json={"every": 120})
    acts = await api.get("/api/v1/audit")
    assert [act["verb"] for act in acts.json()["items"]] == ["schedules.change", "schedules.create"]
    assert "hunter2" not in acts.text


async def test_dots_are_not_taken_for_the_secret_that_they_hide(app: Drumbeat, api: httpx.AsyncClient) -> None:
    await login_schedule(app, api)
    shown = (await api.get("/api/v1/schedules/nightly")).json()["args"]
    answer = await api.put("/api/v1/schedules/nightly", json={"args": shown})
    assert (answer.status_code, answer.json()["argument"]) == (422, "args")
    assert "hunter2" in (await app.schedules.show("nightly")).args


async def test_a_default_that_is_a_secret_is_not_shown(app: Drumbeat, api: httpx.AsyncClient) -> None:
    @app.task
    async def fetch(url: str = "https://shop.example", *, api_key: str = "hunter2", retries: int = 3) -> None:
        pass

    for path in ("/api/v1/tasks", "/api/v1/tasks/fetch", "/tasks/fetch", "/tasks"):
        assert "hunter2" not in (await api.get(path)).text
    info = (await api.get("/api/v1/tasks/fetch")).json()
    assert info["call"] == "fetch(url: str = 'https://shop.example', *, api_key: str = •••, retries: int = 3) -> None"
    assert [each["default"] for each in info["parameters"]] == ['"https://shop.example"', None, "3"]


@pytest.mark.parametrize("password", ["hunter2", "hun/ter2", "hun#ter2", "hun?ter2", "h@unter2", "hun%2Fter2"])
async def test_no_url_among_the_settings_shows_its_password(
    tmp_path: Path, open_browser: OpenBrowser, password: str
) -> None:
    outbox = f"postgresql://ada:{password}@127.0.0.1:1/app?sslpassword={password}"
    tokens = "ada:viewer:a-very-secret-token-of-ada"
    async with Drumbeat(f"sqlite:///{tmp_path}/a.db", outbox=outbox, dashboard_tokens=tokens) as app:
        browser = open_browser(app.dashboard(), headers={"Authorization": "Bearer a-very-secret-token-of-ada"})
        for path in ("/api/v1/system", "/system", "/api/v1/status"):
            answer = await browser.get(path)
            assert answer.status_code == 200
            assert not any(part in answer.text for part in ("ter2", "hun", "a-very-secret"))


async def login_schedule(app: Drumbeat, api: httpx.AsyncClient) -> None:
    """A schedule whose job takes a secret."""

    @app.task
    async def login(user: str, password: str) -> None:
        pass

    body = {"task": "login", "name": "nightly", "every": 60, "args": {"user": "ada", "password": "hunter2"}}
    assert (await api.post("/api/v1/schedules", json=body)).status_code == 200
