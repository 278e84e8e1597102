"""Writes down the calls of processes to their store, and what was answered, as records of a history.

A call is recorded before it is made and again with its answer: one that was never answered may have had its effect. Where the
records go is the business of a sink: the simulation has its history at hand, chaos a journal that many processes share.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from drumbeat.core.lock import NewTicket
from drumbeat.store.protocol import Store
from drumbeat.testing.store_wrapper import StoreCall, WrappedStore
from tests.proof.history import (
    BeatReceived,
    ClaimedRef,
    ClaimPerformed,
    CursorMove,
    History,
    LeaderSeen,
    TicketCall,
)

LISTS = {
    TicketCall: "ticket_calls",
    ClaimPerformed: "claims_performed",
    CursorMove: "cursor_moves",
    BeatReceived: "beats_received",
    LeaderSeen: "leaders",
}
"""Where each kind of record belongs in a history."""

R = TypeVar("R", bound=msgspec.Struct)


class RecordSink(Protocol):
    def add(self, record: msgspec.Struct) -> int:
        """Returns a number, under which it may be replaced."""
        ...

    def replace(self, number: int, record: msgspec.Struct) -> None: ...


class HistorySink:
    def __init__(self, history: History) -> None:
        self._history = history

    def add(self, record: msgspec.Struct) -> int:
        records = self._list(record)
        records.append(record)
        return len(records) - 1

    def replace(self, number: int, record: msgspec.Struct) -> None:
        self._list(record)[number] = record

    def _list(self, record: msgspec.Struct) -> list[Any]:
        return cast("list[Any]", getattr(self._history, LISTS[type(record)]))


class RecordedCall(Generic[R]):
    def __init__(self, sink: RecordSink, record: R) -> None:
        self._sink = sink
        self._record = record
        self._number = sink.add(record)

    def end(self, **facts: Any) -> None:
        self._sink.replace(self._number, msgspec.structs.replace(self._record, **facts))


class CallObserver:
    """`operations`: the calls that are recorded; the names of its methods, with those of the store's parts."""

    def __init__(self, sink: RecordSink, time: Callable[[], float], operations: Sequence[str]) -> None:
        self._sink = sink
        self._time = time
        self._operations = frozenset(operations)
        self._tickets: dict[str, NewTicket] = {}

    def observe(self, store: Store, node: str) -> WrappedStore:
        def wrap(call: str, real: StoreCall) -> StoreCall:
            if call not in self._operations:
                return real
            record = getattr(self, call.partition(".")[2])

            async def called(*args: Any, **kwargs: Any) -> Any:
                return await record(node, real, *args, **kwargs)

            return called

        return WrappedStore(store, wrap)

    # Locks

    async def acquire(self, node: str, real: Any, ticket: NewTicket) -> Any:
        self._tickets[ticket.id] = ticket
        [call] = self._begin(node, "acquire", [ticket.id])
        answer = await real(ticket)
        self._end(call, answer)
        return answer

    async def ticket_status(self, node: str, real: Any, tickets: Any, *, renew: bool) -> Any:
        calls = self._begin(node, "renew" if renew else "look", tickets)
        answers = await real(tickets, renew=renew)
        for call, answer in zip(calls, answers, strict=True):
            self._end(call, answer)
        return answers

    async def release(self, node: str, real: Any, tickets: Any) -> None:
        calls = self._begin(node, "release", tickets)
        await real(tickets)
        for call in calls:
            call.end(end=self._time())

    def _begin(self, node: str, call: Any, tickets: Any) -> list[RecordedCall[TicketCall]]:
        now = self._time()
        return [RecordedCall(self._sink, self._describe(node, call, id, now)) for id in tickets]

    def _describe(self, node: str, call: Any, id: str, now: float) -> TicketCall:
        ticket = self._tickets.get(id)
        return TicketCall(
            lock="" if ticket is None else ticket.lock,
            ticket=id,
            node=node,
            call=call,
            start=now,
            lease=0.0 if ticket is None else ticket.lease / 1e6,
            limit=1 if ticket is None else ticket.limit,
            per=None if ticket is None or ticket.per is None else ticket.per / 1e6,
        )

    def _end(self, call: RecordedCall[TicketCall], answer: Any) -> None:
        call.end(end=self._time(), state=str(answer.state), token=answer.token)

    # Processes

    async def heartbeat(self, node: str, real: Any, id: Any, running: int, *, lead: int | None = None) -> Any:
        start = self._time()
        reply = await real(id, running, lead=lead)
        leader, now = reply.leader, self._time()
        if reply.alive:
            is_leader = leader is not None and leader.instance == id
            self._sink.add(BeatReceived(node=node, at=now, asks_to_lead=lead is not None, is_leader=is_leader))
        if leader is not None:
            self._sink.add(LeaderSeen(term=leader.term, leader=str(leader.instance), start=start, end=now))
        return reply

    async def report_and_claim(self, node: str, real: Any, instance: Any, outcomes: Any, request: Any) -> Any:
        if request is None:
            return await real(instance, outcomes, None)
        call = RecordedCall(self._sink, ClaimPerformed(node=node, start=self._time()))
        answer = await real(instance, outcomes, request)
        jobs = tuple(
            ClaimedRef(
                job=str(job.id),
                token=job.token,
                run_at=job.run_at,
                queue=job.queue,
                priority=job.priority,
                lane=job.lane,
            )
            for job in answer.jobs
        )
        call.end(end=self._time(), now=answer.now, jobs=jobs)
        return answer

    # Schedules

    async def fire(self, node: str, real: Any, requests: Any) -> Any:
        results = await real(requests)
        for request, result in zip(requests, results, strict=True):
            if result.applied and request.advances:
                move = CursorMove(
                    schedule=request.name,
                    at=self._time(),
                    before=request.expected_cursor,
                    after=request.cursor,
                    fired=len(result.jobs),
                    chosen=len(request.fires),
                )
                self._sink.add(move)
        return results
