"""The doctor's findings about stored records that cannot be read: which they are, and what to do. Pure."""

from collections.abc import Sequence

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.ids import is_job_id
from drumbeat.store.malformed import Fault

CHECK_NAME = "stored records"
_JOBS = ("job", "dead letter", "ended job")
MAX_NAMED = 20
"""Records that are listed one by one; the others are counted."""

_ADVICE = {
    "job": "`drumbeat jobs cancel {id}` ends it; a worker that claims it makes it a dead letter",
    "dead letter": "`drumbeat dead discard {id}` ends it; replayed as it is, it dies again",
    "schedule": "it does not fire: `drumbeat schedules delete {id}`, then create it again or restart what declares it",
    "lock": "`drumbeat locks release {id}`; the next acquire repairs it",
}
_BY_HAND = "its id is not that of a job, so no command can address it: delete that row in the store by hand"
_OTHERWISE = "it is ignored until it is pruned; or repair that field in the store by hand"


def check_records(faults: Sequence[Fault]) -> list[HealthCheck]:
    if not faults:
        return [HealthCheck(name=CHECK_NAME, level=HealthLevel.OK, value="all that were checked can be read")]
    records: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        records.setdefault((fault.kind, fault.id), []).append(fault)
    found = [
        HealthCheck(
            name=f"{kind} {id}",
            level=HealthLevel.WARN,
            value="; ".join(map(str, some)),
            advice=_advice(kind, id),
        )
        for (kind, id), some in list(records.items())[:MAX_NAMED]
    ]
    if len(records) > MAX_NAMED:
        more = f"{len(records) - MAX_NAMED:,} more cannot be read"
        found.append(
            HealthCheck(
                name=CHECK_NAME,
                level=HealthLevel.WARN,
                value=more,
                advice="repair or discard those above, and run the doctor again",
            )
        )
    return found


def _advice(kind: str, id: str) -> str:
    if kind in _JOBS and not is_job_id(id):
        return _BY_HAND
    return _ADVICE.get(kind, _OTHERWISE).format(id=id)
