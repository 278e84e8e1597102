"""Pages that write down what a page of ours must never do: an error in the console, a request to another place, an alert."""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, Request, Response, ViewportSize, expect

from drumbeat.web import Dashboard

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESK = ViewportSize(width=1280, height=800)
PHONE = ViewportSize(width=375, height=740)
PATIENCE_MS = 15_000
expect.set_options(timeout=PATIENCE_MS)


def on_engine(engine: str) -> pytest.MarkDecorator:
    """On one engine: a page looks the same on each, and what it asks of the API is tested on all. `DRUMBEAT_FULL=1`: on all."""
    engines = ["sqlite", "postgres", "valkey"] if os.environ.get("DRUMBEAT_FULL") else [engine]
    return pytest.mark.parametrize("engine", engines, indirect=True)


Haste = Callable[[Dashboard], Dashboard]


class OpenPage(Protocol):
    async def __call__(self, address: str, *, dark: bool = False, phone: bool = False) -> Page: ...


class Opener:
    def __init__(self, browser: Browser, stack: AsyncExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self._wrong: list[str] = []
        self._said: list[tuple[str, str]] = []
        self._refused: set[str] = set()

    async def open(self, address: str, *, dark: bool = False, phone: bool = False) -> Page:
        context = await self._browser.new_context(
            base_url=address,
            color_scheme="dark" if dark else "light",
            viewport=PHONE if phone else DESK,
            has_touch=phone,
            reduced_motion="reduce",
        )
        self._stack.push_async_callback(context.close)
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        self._watch(page, address)
        return page

    def _watch(self, page: Page, address: str) -> None:
        def note(what: str, detail: Any) -> None:
            self._wrong.append(f"{what} at {page.url}: {detail}")

        def asked(request: Request) -> None:
            scheme, place = urlsplit(request.url)[:2]
            if (scheme, place) != tuple(urlsplit(address)[:2]):
                note("a request elsewhere", request.url)

        def answered(response: Response) -> None:
            if response.status >= 500 or (response.status == 404 and "/static/" in response.url):
                note("an answer", f"{response.status} {response.url}")
            if 400 <= response.status < 500 and response.request.method != "GET":
                self._refused.add(response.url)

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self._said.append((message.location.get("url", ""), f"{message.text} at {page.url}"))

        async def alerted(dialog: Dialog) -> None:
            note("an alert", dialog.message)
            await dialog.dismiss()

        page.on("request", asked)
        page.on("response", answered)
        page.on("console", said)
        page.on("dialog", alerted)
        page.on("pageerror", lambda error: note("an exception", error))

    def check(self) -> None:
        # The browser itself writes down every write that was refused, which is what the API does with a wrong field, and
        # that the server has left before the page: a test's own end.
        said = [text for url, text in self._said if url not in self._refused and "net::ERR_" not in text]
        wrong = self._wrong + [f"in the console: {text}" for text in said]
        assert not wrong, "\n".join(wrong)
