"""Every write goes through here: on record before it is done, done once for a request that is sent twice.

    begin (who, what, why, key) --new--> do it --> end (how many, how it went, the answer)
                                --the same request before--> its answer, again

A request with an Idempotency-Key that the same caller has used in the last 24 hours gets the answer of the first one, also
while that one is still under way. The same key with another request is refused. A dry run changes nothing and is not recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from drumbeat.errors import StoreError
from drumbeat.model.audit import Act, NewAct
from drumbeat.nouns.audit import new_act
from drumbeat.store.protocol import Store
from drumbeat.web.call import Answer, Call, Given, Route
from drumbeat.web.problem import MEDIA, Problem, problem_of

log = logging.getLogger(__name__)

KEY_HEADER = "idempotency-key"
LONGEST_KEY, LONGEST_WHY = 200, 500
LOOKS, PAUSE = 200, 0.05
"""How often, and how far apart, it is looked whether the first of two equal requests has been answered: 10 seconds."""


class Kept(msgspec.Struct, frozen=True):
    """An answer as the audit keeps it."""

    status: int
    body: msgspec.Raw


async def perform(call: Call, route: Route) -> Given:
    """Do what the route does, on record."""
    if getattr(call.body, "dry_run", False):
        return await route.handler(call)
    store = await call.host.store()
    act = _act(call, route)
    call.act = act.id
    earlier = await store.audit.begin(act)
    if earlier is not None:
        return await _again(call, store, act, earlier)
    try:
        given = await route.handler(call)
    except Exception as error:
        problem = problem_of(error)
        outcome = "refused" if problem.status < 500 else f"failed: {problem}"
        await _end(store, act, 0, outcome, problem.answer())
        raise problem from error
    answer = given if isinstance(given, Answer) else Answer(status=route.status, body=given)
    if answer.after is not None:
        return msgspec.structs.replace(answer, after=partial(_go_on, call, store, act, answer, answer.after))
    await _end(store, act, call.touched, "done", answer)
    return answer


async def _go_on(call: Call, store: Store, act: NewAct, answer: Answer, after: Callable[[], Awaitable[None]]) -> None:
    """The rest of an act whose answer has been sent; only then it is known to how many it was done."""
    try:
        await after()
    except asyncio.CancelledError:
        await _end(store, act, call.touched, "failed: the dashboard was stopped", answer)
        raise
    except Exception as error:
        problem = problem_of(error)
        log.warning("act was broken off", extra={"act": act.id, "verb": act.verb, "reason": str(problem)})
        await _end(store, act, call.touched, f"failed: {problem}", answer)
    else:
        await _end(store, act, call.touched, "done", answer)


def _act(call: Call, route: Route) -> NewAct:
    key = call.headers.get(KEY_HEADER)
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise Problem(422, f"it must have 1 to {LONGEST_KEY} printable ASCII characters", argument="Idempotency-Key")
    query = msgspec.json.encode(call.query)
    asked = b"\n".join((route.method.encode(), call.here.encode(errors="replace"), query, call.raw))
    act = new_act(
        who=call.caller.name,
        role=call.caller.role.value,
        via="api",
        verb=route.verb,
        target=_target(call),
        why=_text(getattr(call.body, "why", "") or getattr(call.query, "why", ""), "why", LONGEST_WHY),
    )
    request_hash = None if key is None else hashlib.sha256(asked).hexdigest()
    return msgspec.structs.replace(act, request_key=key, request_hash=request_hash)


def _target(call: Call) -> str:
    described = getattr(call.body, "target", None)
    return str(described()) if callable(described) else "/".join(call.path.values())


def _text(value: str, name: str, longest: int) -> str:
    if len(value) > longest or not value.replace("\n", " ").isprintable():
        raise Problem(422, f"{name} must have at most {longest} printable characters", argument=name)
    return value


async def _again(call: Call, store: Store, act: NewAct, earlier: Act) -> Answer:
    """The answer of the first of two requests with the same key."""
    if earlier.request_hash != act.request_hash:
        raise Problem(
            422,
            "this key has been used for another request: use a new one",
            argument="Idempotency-Key",
            type="key-reused",
        )
    for _ in range(LOOKS):
        if earlier.outcome is not None:
            return _repeated(earlier)
        await call.host.clock.sleep(PAUSE)
        earlier = await store.audit.get(earlier.id) or earlier
    raise Problem(
        409,
        "the first request with this key has not ended, or its end is not known: look whether it was done, then use a new key",
        argument="Idempotency-Key",
        type="key-in-use",
    )


def _repeated(earlier: Act) -> Answer:
    if earlier.answer is None:
        raise Problem(
            409, f"this was {earlier.outcome} before; its answer was too large to keep", type="answer-not-kept"
        )
    kept = msgspec.json.decode(earlier.answer, type=Kept)
    media = "application/json" if kept.status < 400 else MEDIA
    return Answer(status=kept.status, body=bytes(kept.body), media=media, headers={"Idempotent-Replayed": "true"})


async def _end(store: Store, act: NewAct, touched: int, outcome: str, answer: Answer) -> None:
    try:
        await store.audit.end(act.id, touched=touched, outcome=outcome, answer=_kept(answer.status, answer.body))
    except StoreError as error:
        # It is on record that it was begun. What was done must be told to the caller all the same.
        log.warning("end of an act was not recorded", extra={"act": act.id, "verb": act.verb, "reason": str(error)})


def _kept(status: int, body: Any) -> str:
    return msgspec.json.encode(Kept(status, msgspec.Raw(msgspec.json.encode(body)))).decode()
