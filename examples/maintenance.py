"""Nine periodic jobs of a shop's backend, from every 30 seconds to once a day.

    python maintenance.py                     runs them, until Ctrl-C; start it on as many machines as you like
    drumbeat schedules                        when each of them runs next
    drumbeat schedules run-now reports        runs it at once
    drumbeat schedules history heartbeats     what became of each fire

Each fire is run once, by one of the instances. Times of day are those of Berlin, also when the clocks change.
"""

from datetime import UTC, datetime

from drumbeat import AttemptFailed, Drumbeat, current_job

app = Drumbeat(name="maintenance", version="1")


@app.every("30s")
async def heartbeats() -> str:
    return "partners answer"


@app.every("1m", grid=True, catch_up="none")
async def queue_lengths() -> str:
    return "measured"  # a missed measurement is not worth taking later


@app.every("5m", grid=True, jitter="30s")
async def exchange_rates() -> str:
    return "fetched"  # jitter: not all shops at the same second


@app.every("10m", overlap="cancel", grid=True, timeout="9m")
async def search_index() -> str:
    return "rebuilt"  # a newer run makes the old one worthless


@app.cron("H * * * *", retries=5)
async def abandoned_carts() -> str:
    return "reminded"  # H: a minute chosen by the schedule's name


@app.cron("0 9-17 * * MON-FRI", tz="Europe/Berlin")
async def reports() -> str:
    return f"figures until {current_job().scheduled_for:%H:%M}"


@app.every("6h", grid=True, start=datetime(2026, 1, 1, 1, 30, tzinfo=UTC))
def old_files() -> str:
    return "removed"  # `def` runs in a thread


@app.cron("0 0 * * *", tz="Europe/Berlin", catch_up="all", overlap="queue")
async def close_the_day() -> str:
    return f"the day before {current_job().scheduled_for:%Y-%m-%d} is closed"  # every day, including those of an outage


@app.cron("30 2 * * *", tz="Europe/Berlin", max_late="3h", timeout="1h")
def backup() -> str:
    return "made"  # skipped rather than run in the morning


@app.on_event(AttemptFailed)
def report(event: AttemptFailed) -> None:
    print(f"{event.job.task} failed: {event.error.message}")


if __name__ == "__main__":
    app.run()
