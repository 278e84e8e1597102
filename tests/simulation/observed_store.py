"""A store that writes into the history what it was asked and what it answered, at the moment at which it does.

It stands behind the network: a request that comes late, or that nobody waits for any more, is recorded when it arrives.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from drumbeat.core.lock import NewTicket
from drumbeat.store.protocol import Store
from tests.proof.history import BeatReceived, ClaimedRef, ClaimPerformed, CursorMove, History, LeaderSeen, TicketCall


class StoreObserver:
    """What one run of the simulation writes down about all its stores."""

    def __init__(self, history: History, time: Callable[[], float]) -> None:
        self.history = history
        self.time = time
        self._tickets: dict[str, NewTicket] = {}

    def observe(self, store: Store, node: str) -> "ObservedStore":
        return ObservedStore(self, store, node)

    # Locks

    async def acquire(self, node: str, real: Any, ticket: NewTicket) -> Any:
        self._tickets[ticket.id] = ticket
        [index] = self._begin(node, "acquire", [ticket.id])
        answer = await real(ticket)
        self._end(index, answer)
        return answer

    async def ticket_status(self, node: str, real: Any, tickets: Any, *, renew: bool) -> Any:
        indices = self._begin(node, "renew" if renew else "look", tickets)
        answers = await real(tickets, renew=renew)
        for index, answer in zip(indices, answers, strict=True):
            self._end(index, answer)
        return answers

    async def release(self, node: str, real: Any, tickets: Any) -> None:
        indices = self._begin(node, "release", tickets)
        await real(tickets)
        for index in indices:
            self._end(index, None)

    def _begin(self, node: str, call: Any, tickets: Any) -> list[int]:
        calls = self.history.ticket_calls
        first, now = len(calls), self.time()
        for id in tickets:
            ticket = self._tickets.get(id)
            calls.append(
                TicketCall(
                    lock="" if ticket is None else ticket.lock,
                    ticket=id,
                    node=node,
                    call=call,
                    start=now,
                    lease=0.0 if ticket is None else ticket.lease / 1e6,
                    limit=1 if ticket is None else ticket.limit,
                    per=None if ticket is None or ticket.per is None else ticket.per / 1e6,
                )
            )
        return list(range(first, len(calls)))

    def _end(self, index: int, answer: Any) -> None:
        facts = {} if answer is None else {"state": str(answer.state), "token": answer.token}
        calls = self.history.ticket_calls
        calls[index] = msgspec.structs.replace(calls[index], end=self.time(), **facts)

    # Processes

    async def heartbeat(self, node: str, real: Any, id: Any, running: int, *, lead: int | None = None) -> Any:
        start = self.time()
        reply = await real(id, running, lead=lead)
        leader, now = reply.leader, self.time()
        if reply.alive:
            is_leader = leader is not None and leader.instance == id
            self.history.beats_received.append(
                BeatReceived(node=node, at=now, asks_to_lead=lead is not None, is_leader=is_leader)
            )
        if leader is not None:
            seen = LeaderSeen(term=leader.term, leader=str(leader.instance), start=start, end=now)
            self.history.leaders.append(seen)
        return reply

    async def report_and_claim(self, node: str, real: Any, instance: Any, outcomes: Any, request: Any) -> Any:
        if request is None:
            return await real(instance, outcomes, None)
        claims = self.history.claims_performed
        index = len(claims)
        claims.append(ClaimPerformed(node=node, start=self.time()))
        answer = await real(instance, outcomes, request)
        jobs = tuple(
            ClaimedRef(job=str(job.id), token=job.token, run_at=job.run_at, queue=job.queue, priority=job.priority)
            for job in answer.jobs
        )
        claims[index] = msgspec.structs.replace(claims[index], end=self.time(), now=answer.now, jobs=jobs)
        return answer

    # Schedules

    async def fire(self, node: str, real: Any, requests: Any) -> Any:
        results = await real(requests)
        self.history.cursor_moves += [
            CursorMove(
                schedule=request.name,
                at=self.time(),
                before=request.expected_cursor,
                after=request.cursor,
                fired=len(result.jobs),
            )
            for request, result in zip(requests, results, strict=True)
            if result.applied and request.advances
        ]
        return results


OPERATIONS = {
    "locks": ("acquire", "ticket_status", "release"),
    "instances": ("heartbeat",),
    "jobs": ("report_and_claim",),
    "schedules": ("fire",),
}


class ObservedStore:
    def __init__(self, observer: StoreObserver, store: Store, node: str) -> None:
        self._observer = observer
        self._store = store
        self._node = node

    def __getattr__(self, part: str) -> Any:
        found = getattr(self._store, part)
        if part in OPERATIONS:
            found = ObservedPart(self._observer, found, OPERATIONS[part], self._node)
        setattr(self, part, found)
        return found


class ObservedPart:
    def __init__(self, observer: StoreObserver, part: Any, operations: tuple[str, ...], node: str) -> None:
        self._observer = observer
        self._part = part
        self._operations = operations
        self._node = node

    def __getattr__(self, operation: str) -> Any:
        real = getattr(self._part, operation)
        if operation in self._operations:
            observe, node, plain = getattr(self._observer, operation), self._node, real

            async def real(*args: Any, **kwargs: Any) -> Any:
                return await observe(node, plain, *args, **kwargs)

        setattr(self, operation, real)
        return real
