"""Panels of a program's own: their buttons are ordinary writes, checked and on record, and nowhere else."""

import re

import pytest

from drumbeat import Drumbeat
from drumbeat.errors import InvalidArguments
from drumbeat.web import Dashboard, dashboard
from drumbeat.web.panels import Button, ButtonResult, Panel
from drumbeat.web.route import AccessRole
from tests.web.conftest import OpenBrowser, bearer

PRESS, WIPE = "/api/v1/shop/ring", "/api/v1/shop/wipe"


class Bell:
    def __init__(self) -> None:
        self.rings = 0

    async def ring(self) -> ButtonResult:
        self.rings += 1
        return ButtonResult(message=f"<b>ring</b> {self.rings}", touched=7)

    async def refuse(self) -> ButtonResult:
        raise InvalidArguments("there is nothing to wipe")

    def panel(self) -> Panel:
        ring = Button(name="ring", label="Ring <it>", text="rings the bell", action=self.ring)
        wipe = Button(name="wipe", label="Wipe", text="wipes", action=self.refuse, role=AccessRole.ADMIN, danger=True)
        return Panel(name="shop", title="The shop", text="Buttons of its own.", buttons=(ring, wipe))


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def extended(guarded: Drumbeat, bell: Bell) -> Dashboard:
    return dashboard(guarded._internals, panels=[bell.panel()])


async def test_a_button_does_its_work_and_is_on_record(
    extended: Dashboard, bell: Bell, guarded: Drumbeat, open_browser: OpenBrowser
) -> None:
    operator = open_browser(extended, headers=bearer("operator"))
    answer = await operator.post(PRESS, json={"reason": "it is noon"})
    assert (answer.status_code, answer.json()) == (200, {"message": "<b>ring</b> 1", "touched": 7})
    [act] = await guarded.audit.list()
    assert (act.who, act.verb, act.reason, act.touched, act.outcome) == (
        "operator-person",
        "shop.ring",
        "it is noon",
        7,
        "done",
    )


async def test_the_same_request_sent_twice_presses_once(
    extended: Dashboard, bell: Bell, open_browser: OpenBrowser
) -> None:
    operator = open_browser(extended, headers=bearer("operator") | {"Idempotency-Key": "one"})
    first, second = await operator.post(PRESS, json={}), await operator.post(PRESS, json={})
    assert (first.json(), bell.rings) == (second.json(), 1)


async def test_a_refusal_is_told_and_on_record(
    extended: Dashboard, guarded: Drumbeat, open_browser: OpenBrowser
) -> None:
    answer = await open_browser(extended, headers=bearer("admin")).post(WIPE, json={})
    assert (answer.status_code, answer.json()["detail"]) == (422, "there is nothing to wipe")
    assert [(act.verb, act.outcome) for act in await guarded.audit.list()] == [("shop.wipe", "refused")]


async def test_nobody_presses_a_button_that_the_role_does_not_allow_or_from_another_site(
    extended: Dashboard, bell: Bell, guarded: Drumbeat, open_browser: OpenBrowser
) -> None:
    assert (await open_browser(extended, headers=bearer("viewer")).post(PRESS, json={})).status_code == 403
    assert (await open_browser(extended, headers=bearer("operator")).post(WIPE, json={})).status_code == 403
    stranger = open_browser(extended, headers={"Sec-Fetch-Site": "cross-site"})
    assert (await stranger.post(PRESS, json={})).json()["type"] == "origin"
    assert (bell.rings, await guarded.audit.list()) == (0, [])


@pytest.mark.parametrize(
    ("role", "seen"), [("viewer", set()), ("operator", {"press-ring"}), ("admin", {"press-ring", "act-wipe"})]
)
async def test_the_overview_shows_the_buttons_that_somebody_may_press(
    extended: Dashboard, open_browser: OpenBrowser, role: str, seen: set[str]
) -> None:
    page = await open_browser(extended, headers=bearer(role)).get("/")
    assert set(re.findall(r'data-test="((?:press|act)-\w+)"', page.text)) == seen
    assert ("The shop" in page.text) == bool(seen)
    assert "Ring <it>" not in page.text


async def test_a_dashboard_without_panels_knows_nothing_of_them(guarded: Drumbeat, open_browser: OpenBrowser) -> None:
    admin = open_browser(guarded.dashboard(), headers=bearer("admin"))
    assert (await admin.post(PRESS, json={})).status_code == 404
    assert "panel" not in (await admin.get("/")).text
    assert PRESS not in (await admin.get("/api/v1/openapi.json")).json()["paths"]


async def test_the_buttons_are_in_the_openapi_document(extended: Dashboard, open_browser: OpenBrowser) -> None:
    document = (await open_browser(extended, headers=bearer("viewer")).get("/api/v1/openapi.json")).json()
    assert document["paths"][PRESS]["post"]["summary"] == "The shop: rings the bell"
    assert document["components"]["schemas"]["ButtonResult"]["properties"].keys() == {"message", "touched"}


def test_a_panel_cannot_take_an_address_that_is_taken_or_is_none(guarded: Drumbeat, bell: Bell) -> None:
    ring = bell.panel().buttons[0]
    for name, button, message in [("queues", "a/b", "small letters"), ("Shop", "ring", "small letters")]:
        panel = Panel(
            name=name, title="", text="", buttons=(Button(name=button, label="", text="", action=ring.action),)
        )
        with pytest.raises(ValueError, match=message):
            dashboard(guarded._internals, panels=[panel])
    with pytest.raises(ValueError, match="in the table twice"):
        dashboard(guarded._internals, panels=[bell.panel(), bell.panel()])
