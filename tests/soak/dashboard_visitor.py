"""Somebody who looks at the dashboard now and then: pages, metrics, events; and pauses and resumes a schedule."""

import itertools
from collections import Counter

import httpx

from drumbeat.clock import SYSTEM

VISIT_INTERVAL = 3.0
PAGES = (
    *(
        "/",
        "/jobs",
        "/dead",
        "/queues",
        "/tasks",
        "/schedules",
        "/timeline",
        "/instances",
        "/locks",
        "/audit",
        "/system",
    ),
    *("/metrics", "/api/v1/jobs", "/jobs?state=succeeded", "/tasks/quick", "/queues/default", "/schedules/tick"),
)
STREAM_EVENTS = 5


class DashboardVisitor:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self.statuses: Counter[str] = Counter()

    async def visit(self) -> None:
        headers = {"Origin": self._address}
        async with httpx.AsyncClient(base_url=self._address, timeout=10, headers=headers, trust_env=False) as client:
            for number, page in enumerate(itertools.cycle(PAGES)):
                await SYSTEM.sleep(VISIT_INTERVAL)
                try:
                    self.count(await client.get(page))
                    if number % 5 == 0:
                        await self._follow_events(client)
                        for action in ("pause", "resume"):
                            self.count(await client.post(f"/api/v1/schedules/report/{action}", json={}))
                except httpx.HTTPError as error:
                    self.statuses[type(error).__name__] += 1

    async def _follow_events(self, client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "/api/v1/events") as stream:
            lines = 0
            async for line in stream.aiter_lines():
                lines += line.startswith("data")
                if lines == STREAM_EVENTS:
                    break

    def count(self, response: httpx.Response) -> None:
        self.statuses[str(response.status_code)] += 1
