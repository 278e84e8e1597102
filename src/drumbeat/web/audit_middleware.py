"""Every write is recorded in the audit before it is done, and done once if its request is repeated.

    begin (who, what, reason, key) --new--> handler --> end (touched, outcome, response)
                                   --repeated--> stored response

A request whose Idempotency-Key the same caller has used in the last 24 hours gets the response of the first one, and waits for
it if necessary. The same key with another request is refused. A dry run is not recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import Response

from drumbeat.admin.audit import new_act
from drumbeat.core.audit import AuditEntry, NewAuditEntry
from drumbeat.errors import StoreError
from drumbeat.store.protocol import Store
from drumbeat.web.problem import PROBLEM_MEDIA_TYPE, Problem, to_problem
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import Route

log = logging.getLogger(__name__)

KEY_HEADER = "idempotency-key"
MAX_KEY_LENGTH, MAX_REASON_LENGTH = 200, 500
MAX_POLLS, POLL_INTERVAL = 200, 0.05
"""How often and at which interval a repeated request polls for the first one's response: 10 seconds in all."""


class ActStopped(Exception):
    """Somebody has stopped an act in the background; its text is the outcome."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A response as the audit stores it."""

    status: int
    body: msgspec.Raw


async def perform_audited(request: DashboardRequest, route: Route) -> Response:
    """Call the handler of a write, recorded in the audit."""
    if getattr(request.payload, "dry_run", False):
        return to_response(await call_handler(request, route))
    store = await request.app.store()
    act = _build_act(request, route)
    request.act_id = act.id
    earlier = await store.audit.begin(act)
    if earlier is not None:
        return await _replay_response(request, store, act, earlier)
    try:
        given = await call_handler(request, route)
    except Exception as error:
        problem = to_problem(error)
        outcome = "refused" if problem.status < 500 else f"failed: {problem}"
        await _record_end(store, act, 0, outcome, problem.to_response())
        raise problem from error
    response = to_response(given)
    if response.background is not None:
        response.background = BackgroundTask(_finish_in_background, request, store, act, response, response.background)
    else:
        await _record_end(store, act, getattr(given, "touched", request.touched), "done", response)
    return response


async def call_handler(request: DashboardRequest, route: Route) -> msgspec.Struct | Response:
    """Call the handler of a route with those parts of the request that it declares."""
    parts = {"query": request.query, "body": request.payload, **request.path_params}
    declared = inspect.get_annotations(route.handler)
    return await route.handler(request, **{name: part for name, part in parts.items() if name in declared})


def to_response(given: msgspec.Struct | Response) -> Response:
    """The response for what a handler returned."""
    return given if isinstance(given, Response) else Response(msgspec.json.encode(given), media_type="application/json")


async def _finish_in_background(
    request: DashboardRequest,
    store: Store,
    act: NewAuditEntry,
    response: Response,
    rest: BackgroundTask,
) -> None:
    """The rest of an act whose response has been sent; `touched` is known only afterwards."""
    try:
        await rest()
    except asyncio.CancelledError:
        await _record_end(store, act, request.touched, "failed: the dashboard was stopped", response)
        raise
    except Exception as error:
        problem = to_problem(error)
        if isinstance(error, ActStopped):
            await _record_end(store, act, request.touched, str(error), response)
            return
        log.warning("background act failed", extra={"act": act.id, "verb": act.verb, "reason": str(problem)})
        await _record_end(store, act, request.touched, f"failed: {problem}", response)
    else:
        await _record_end(store, act, request.touched, "done", response)


def _build_act(request: DashboardRequest, route: Route) -> NewAuditEntry:
    key = request.headers.get(KEY_HEADER)
    if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise Problem(422, f"it must have 1 to {MAX_KEY_LENGTH} printable ASCII characters", argument="Idempotency-Key")
    reason = getattr(request.payload, "reason", "") or getattr(request.query, "reason", "")
    if len(reason) > MAX_REASON_LENGTH or not reason.replace("\n", " ").isprintable():
        raise Problem(422, f"reason must have at most {MAX_REASON_LENGTH} printable characters", argument="reason")
    query = msgspec.json.encode(request.query)
    hashed = b"\n".join((route.method.encode(), request.route_path.encode(errors="replace"), query, request.raw_body))
    act = new_act(
        who=request.caller.name,
        role=request.caller.role.value,
        via="api",
        verb=_describe(request, "verb") or route.verb,
        target=_describe(request, "target") or "/".join(request.path_params.values()),
        reason=reason,
    )
    request_hash = None if key is None else hashlib.sha256(hashed).hexdigest()
    return msgspec.structs.replace(act, request_key=key, request_hash=request_hash)


def _describe(request: DashboardRequest, name: str) -> str:
    """The verb or target that the body itself defines; empty: none."""
    describe = getattr(request.payload, name, None)
    return str(describe()) if callable(describe) else ""


async def _replay_response(
    request: DashboardRequest, store: Store, act: NewAuditEntry, earlier: AuditEntry
) -> Response:
    """The response of the first request with the same key."""
    if earlier.request_hash != act.request_hash:
        raise Problem(
            422,
            "this key was used for another request: use a new one",
            argument="Idempotency-Key",
            type="key-reused",
        )
    for _ in range(MAX_POLLS):
        if earlier.outcome is not None:
            return _stored_response(earlier)
        await request.app.clock.sleep(POLL_INTERVAL)
        earlier = await store.audit.get(earlier.id) or earlier
    raise Problem(
        409,
        "the first request with this key has not finished, or its outcome is unknown: check whether it was done, "
        "then use a new key",
        argument="Idempotency-Key",
        type="key-in-use",
    )


def _stored_response(earlier: AuditEntry) -> Response:
    if earlier.answer is None:
        raise Problem(409, f"already {earlier.outcome}; the response was too large to store", type="answer-not-kept")
    kept = msgspec.json.decode(earlier.answer, type=StoredResponse)
    media = "application/json" if kept.status < 400 else PROBLEM_MEDIA_TYPE
    return Response(bytes(kept.body), kept.status, {"Idempotent-Replayed": "true"}, media)


async def _record_end(store: Store, act: NewAuditEntry, touched: int, outcome: str, response: Response) -> None:
    stored = msgspec.json.encode(StoredResponse(response.status_code, msgspec.Raw(response.body)))
    try:
        await store.audit.end(act.id, touched=touched, outcome=outcome, answer=stored.decode())
    except StoreError as error:
        # Its begin is recorded, and the caller must learn what was done.
        log.warning("outcome of an act was not recorded", extra={"act": act.id, "verb": act.verb, "reason": str(error)})
