"""Every page of the dashboard, with something on it."""

from urllib.parse import quote

from drumbeat import Drumbeat
from drumbeat.core.limits import Bounds
from drumbeat.web.pages import PAGES
from tests.contract.flows import DIAMOND, add_flow
from tests.contract.lanes import add_jobs, declare
from tests.contract.test_locks import enter
from tests.web.browser.shop import MAIL, dead_letters, enqueue, working

NOT_DRAWN = {"/jobs/export"}


async def furnish(app: Drumbeat) -> None:
    """A little of everything."""
    [ran] = await enqueue(app, 1, "sync_stock", to="Graz")
    async with working(app):
        await app.jobs.handle(ran).result(timeout=20)
    await dead_letters(app, 2)
    await enqueue(app, 3)
    await app._internals.registry["send_mail"].using(key="order-7", delay=3600).enqueue("later@example.org")
    await app.queues.pause("default", reason="their server is down", by="grace")
    await app.schedules.create(app._internals.registry["send_mail"], cron="0 9 * * 1-5", args=["all"], name="weekly")
    store = await app._internals.store()
    await add_flow(store, DIAMOND, labels={"customer": "ada"}, task="send_mail", queue="flows")
    for name in ("ada", "bob"):
        await enter(store, "ledger", owner=f"shop on {name}")
    await declare(store, "", queue=MAIL, whole=Bounds(20), each=Bounds(1, 100, 60_000_000), fair=True)
    await add_jobs(store, "tenant:7", 3, line="", queue=MAIL, task="send_mail")
    await app.limits.set(MAIL, fair=True, reason="the flood of last week", by="grace")
    await enter(store, "rest", owner="shop on cyd", limit=2, per=60_000_000)


async def places(app: Drumbeat) -> list[str]:
    """The address of each page: of pages of one thing, those of each kind of thing."""
    jobs = {job.state: job.id for job in await app.jobs.list()}
    store = await app._internals.store()
    names = {
        "/jobs/{id}": [str(id) for id in jobs.values()],
        "/queues/{name}": [MAIL],
        "/workflows/{id}": [each.id for each in await app.workflows.list()],
        "/tasks/{name}": ["send_mail"],
        "/schedules/{name}": ["weekly"],
        "/schedules/{name}/edit": ["weekly"],
        "/instances/{id}": [str(each.id) for each in await store.inspect.list_instances(all=True)][:1],
        "/limits/{name}": [MAIL],
        "/locks/{name}": ["ledger"],
    }
    return [
        page.path.replace("{id}", name).replace("{name}", quote(name, safe=""))
        for page in PAGES
        if page.path not in NOT_DRAWN
        for name in ([""] if "{" not in page.path else names[page.path])
    ]
