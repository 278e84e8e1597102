"""Instances and locks: the crown moves when the leader is killed, and a line keeps its order."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from drumbeat import Drumbeat
from tests.contract.test_locks import enter, leave
from tests.system.workers import Cluster
from tests.web.browser.dialog import confirm, is_same, mark
from tests.web.browser.page_opener import on_engine

START_MS = 30_000
MOVED_MS = 15_000


@pytest.fixture
def cluster(tmp_path: Path, store_url: str) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, "tests.apps.clockwork")
    cluster.url = store_url
    yield cluster
    cluster.end()


def crowned(page: Page) -> Locator:
    return page.get_by_test_id("instances").locator("tbody tr").filter(has=page.get_by_test_id("crown"))


@on_engine("postgres")
async def test_the_crown_moves_when_the_leader_is_killed(page: Page, app: Drumbeat, cluster: Cluster) -> None:
    processes = {str(process.pid): process for process in (cluster.start(), cluster.start())}
    await page.goto("/instances")
    rows = page.get_by_test_id("instances").locator("tbody tr")
    await expect(rows).to_have_count(2, timeout=START_MS)
    await expect(crowned(page)).to_have_count(1)
    await mark(page)
    first = await crowned(page).get_attribute("data-key")
    pid = await crowned(page).locator("td").nth(2).inner_text()
    processes.pop(pid).send_signal(signal.SIGKILL)
    gone = page.get_by_test_id("gone").locator(f"tr[data-key='{first}']")
    await expect(gone).to_be_visible(timeout=MOVED_MS)
    await expect(rows).to_have_count(1)
    [left] = processes
    await expect(crowned(page).locator("td").nth(2)).to_have_text(left, timeout=MOVED_MS)
    second = await crowned(page).get_attribute("data-key")
    await expect(page.get_by_test_id("leader")).to_contain_text(str(second)[:8])
    await expect(page.get_by_test_id("health")).to_contain_text(str(second)[:8])
    assert await is_same(page) and first != second


@on_engine("valkey")
async def test_a_line_is_shown_in_the_order_of_turns_and_moves_up(page: Page, app: Drumbeat) -> None:
    store = await app._internals.store()
    line = [await enter(store, "ledger", owner=f"shop on host {name}") for name in ("ada", "bob", "cyd", "dan")]
    await page.goto("/locks")
    row = page.get_by_test_id("row-ledger")
    await expect(row).to_contain_text("shop on host ada")
    await row.get_by_role("link", name="ledger").click()
    holders, waiters = page.get_by_test_id("holders").locator("li"), page.get_by_test_id("waiters").locator("li .what")
    await expect(holders).to_contain_text(["ada"])
    await expect(waiters).to_contain_text(["bob", "cyd", "dan"])
    await leave(store, line[0], line[2])
    await expect(holders).to_contain_text(["bob"])
    await expect(waiters).to_contain_text(["dan"])
    # By force: the next one has it, and everybody can read who did that and why.
    await confirm(page, page.get_by_test_id("act-release"), "its host is gone")
    await expect(holders).to_contain_text(["dan"])
    await expect(waiters).to_have_count(0)
    await expect(page.get_by_test_id("released")).to_contain_text("local: its host is gone")
