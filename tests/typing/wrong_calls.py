"""Calls that both type checkers must refuse: each line that ends in `# wrong` has an error, and no other line has one."""

from collections.abc import Iterator
from decimal import Decimal

from drumbeat import Call, Drumbeat, Job, JobOutcome, Limit, Results, chain, chord, current_job, group
from drumbeat.sinks import RedisStreamSink

app = Drumbeat()


@app.task
async def plain(customer: int) -> str:
    return str(customer)


@app.task(queue="critical", retries=5)
async def charge(customer: int, amount: Decimal) -> str:
    return f"{customer} {amount}"


@app.task
def resize(path: str) -> int:
    return len(path)


@app.task(batch=500)
async def publish(calls: list[Call[str]]) -> None: ...


app.queue("mail", limit=5)  # wrong
app.queue("mail", limits=[5])  # wrong
app.queue("mail", weights={"a": "b"})  # wrong
app.task(limits=Limit(concurrency=5))  # wrong
app.task(order="fifo")  # wrong
app.task(group=7)  # wrong
Limit(concurrency="5")  # wrong
plain.using(group=7)  # wrong
Limit(5)  # wrong


async def wrong_arguments() -> None:
    await plain.enqueue("1")  # wrong
    await plain.enqueue()  # wrong
    await plain.enqueue(1, 2)  # wrong
    await charge.enqueue(1, amount="9.90")  # wrong
    await charge.enqueue(1, amuont=Decimal(1))  # wrong
    await charge.using(delay=60).enqueue("1", Decimal(1))  # wrong
    charge.bind(1)  # wrong
    resize.enqueue_sync(1)  # wrong
    await publish.enqueue(1)  # wrong
    await plain("1")  # wrong
    resize(1)  # wrong


async def wrong_options() -> None:
    charge.using(dealy=60)  # wrong
    charge.using(priority="high")  # wrong
    charge.using(delay=60)(1, Decimal(1))  # wrong
    charge.using(expires=[1])  # wrong


def takes_number(job: Job, result: int) -> None: ...


plain.on_success(takes_number)  # wrong
resize.on_success(takes_number)


@app.task(retry_on="ValueError")  # wrong
def by_name() -> None: ...


@app.task(backoff=5)  # wrong
def too_short() -> None: ...


async def wrong_results() -> None:
    number: int = await (await plain.enqueue(1)).result()  # wrong
    text: str = resize.enqueue_sync("a").result()  # wrong
    print(number, text)


@app.task(quue="low")  # wrong
def misspelt() -> None: ...


@app.cron("0 3 * * *", catchup="all")  # wrong
def misspelt_too() -> None: ...


@app.every("5m", overlap="sometimes")  # wrong
def undecided() -> None: ...


@app.every("5m")
def scheduled(days: int = 1) -> None: ...


async def wrong_schedules() -> None:
    app.cron(3)  # wrong
    app.on_start(role="boss")  # wrong
    await scheduled.enqueue("1")  # wrong


Drumbeat(concurency=3)  # wrong


@app.room
async def refresh(tickers: list[str]) -> None: ...


async def wrong_messages() -> None:
    await refresh.fan_out([1])  # wrong
    await refresh.broadcast()  # wrong
    refresh.fan_out_sync("a", "b")  # wrong
    app.room(retries=3)(refresh.function)  # wrong


@app.task
async def render(page: str, size: int = 3) -> bytes:
    return page.encode() * size


@app.task
async def add_up(parts: Results[int]) -> int:
    return sum([part async for part in parts])


@app.task
def add_list(parts: list[int]) -> int:
    return sum(parts)


@app.task
async def judge(outcome: JobOutcome[str]) -> None: ...


async def wrong_workflows() -> None:
    flow = app.workflow("invoice-42")
    page = flow.add(plain.bind(1))
    rendered = flow.add(render.bind(page.result))
    flow.add(render.bind(rendered.result))  # wrong
    flow.add(render.bind(page))  # wrong
    flow.add(render.bind(page.outcome))  # wrong
    flow.add(judge.bind(page.result))  # wrong
    flow.add(judge.bind(rendered.outcome))  # wrong
    flow.add(render)  # wrong
    flow.add(render.bind("a"), after=page)  # wrong
    flow.add(render.bind("a"), if_parent_fails="go on")  # wrong
    app.workflow("a", labels={"a": 1})  # wrong
    app.workflow("a", render)  # wrong
    chain(plain.bind(1), render, render)  # wrong
    chain(plain, render)  # wrong
    chord(group([plain.bind(1)]), add_up)  # wrong
    chord(group([plain.bind(1)]), add_list)  # wrong
    plain.map(["a"], then=render)  # wrong
    plain.using(after=[1])  # wrong
    plain.using(if_parent_dies="run")  # wrong
    await current_job().add("pages", [plain])  # wrong


sink = RedisStreamSink(stream="reminders", url="redis://localhost")
remind = app.forward("order.reminder", to=sink, type=int)


async def wrong_events() -> None:
    await remind.enqueue("1")  # wrong
    remind(1)  # wrong
    app.forward("x", to="redis://localhost")  # wrong
    app.forward("y", to=sink, pool="thread")  # wrong
    RedisStreamSink(stream="reminders")  # wrong


class Money:
    pass


@app.codec(Money)  # wrong
class CodecOfAnotherType:
    def encode(self, value: Money) -> str:
        return ""

    def decode(self, stored: str) -> int:
        return 1


@app.codec(Money)  # wrong
class WithoutDecode:
    def encode(self, value: Money) -> str:
        return ""


@app.around  # wrong
async def without_a_yield() -> None: ...


@app.around  # wrong
def with_an_argument(job: str) -> Iterator[None]:
    yield


@app.around(handlers="sync")  # wrong
def of_no_kind() -> Iterator[None]:
    yield


async def wrong_schedules_and_locks() -> None:
    await app.schedules.create(plain, cron="@daily", replace="yes")  # wrong
    await app.schedules.create(plain, corn="@daily")  # wrong
    await app.queues.lag(3)  # wrong
    with app.lock("x"):  # wrong
        pass
    async with app.lock("x", limt=2):  # wrong
        pass
