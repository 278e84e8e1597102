"""The content of a store is untrusted: whatever stands in it shows as text, on every page."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.web.pages import PAGES
from tests.contract import making
from tests.web.conftest import OpenBrowser

EVIL = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>"
WORD = "x<img src=x onerror=alert(1)>"


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if any(name.startswith("on") or name == "style" for name in given):
            self.wrong.append(f"{tag} {given}")
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.wrong.append(f"script {given}")
        if tag == "img" and given.get("src") == "x":
            self.wrong.append("the picture")
        for name in ("href", "src", "action"):
            if re.match(r"(?i)\s*(javascript:|data:|https?:|//)", given.get(name) or ""):
                self.wrong.append(f"{tag} {name}={given[name]}")


@pytest.fixture
async def app(tmp_path: Path) -> Drumbeat:
    """With jobs that nobody could have enqueued by us: written straight into the store."""
    app = Drumbeat(f"sqlite:///{tmp_path}/hostile.db", name="shop")
    store = await app._internals.store()
    instance = await making.worker(store, app=EVIL, host=EVIL, version=EVIL, queues=(WORD,), tasks={WORD: EVIL})
    job = await making.claimed_one(
        store, instance, task=WORD, queue=WORD, key=EVIL, args='{"to":"<img src=x onerror=alert(1)>"}'
    )
    error = Failure(EVIL, EVIL, EVIL)
    await making.report(store, instance, making.outcome(job, OutcomeKind.DEAD, error=error))
    await making.add(store, making.new_job(task=WORD, queue=WORD, key=EVIL))
    await store.jobs.pause_queue(WORD, by=EVIL, reason=EVIL)
    async with app.audit.act(who=EVIL, verb="queues.pause", target=EVIL, reason=EVIL):
        pass
    return app


async def addresses(app: Drumbeat) -> list[str]:
    names = {"id": [str(job.id) for job in await app.jobs.list()], "name": [WORD]}
    names["id"] += [str(instance.id) for instance in await app.instances.list()]
    return [
        re.sub(r"\{\w+\}", quote(name, safe=""), page.path)
        for page in PAGES
        for name in names["id" if "{id}" in page.path else "name"]
    ]


async def test_hostile_names_are_text_on_every_page(app: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(app.dashboard(access="open"))
    shown = 0
    for address in await addresses(app):
        answer = await browser.get(address, headers={"Accept": "text/html"})
        assert answer.status_code in (200, 404, 422), address
        if "text/html" not in answer.headers["content-type"]:
            continue
        seen = Seen()
        seen.feed(answer.text)
        assert seen.wrong == [], address
        shown += "&lt;img src=x" in answer.text
    assert shown >= 6, "the names are there, as text"
    await app.close()


async def test_a_search_for_something_hostile_is_text(app: Drumbeat, open_browser: OpenBrowser) -> None:
    browser = open_browser(app.dashboard(access="open"))
    for path in ("/jobs", "/dead", "/audit", "/login"):
        for parameter in ("q", "state", "queue", "next", "who"):
            answer = await browser.get(path, params={parameter: EVIL}, headers={"Accept": "text/html"})
            seen = Seen()
            seen.feed(answer.text)
            assert seen.wrong == [], (path, parameter)
            assert answer.status_code < 500
    await app.close()
