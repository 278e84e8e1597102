"""Steps, sleeps and signals of a job: on its page, in the API, and a signal that is sent there. On every engine."""

import httpx

from drumbeat import Drumbeat
from drumbeat.core.claim import ClaimRef
from drumbeat.core.job import OutcomeKind
from drumbeat.core.step import NewStep, StepKind
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.ids import JobId, new_job_id
from tests.contract.making import HOUR, claimed_one, end, worker

PAGE = {"Accept": "text/html"}


async def sleeper(app: Drumbeat, suspension: Suspension) -> JobId:
    """A job that has made a step, and is suspended."""
    store = await app._internals.store()
    instance = await worker(store, queues=("mail",))
    job = await claimed_one(store, instance, queue="mail", task="send_mail")
    claim, facts = ClaimRef(job.id, job.token), {"started_at": job.token, "finished_at": job.token + 5}
    step = NewStep(claim=claim, name="charge", result='{"id":7,"password":"hunter2"}', **facts)
    await store.steps.record(instance, [step])
    await end(store, instance, job, OutcomeKind.SUSPENDED, delay=HOUR, suspension=suspension)
    return job.id


NAP = Suspension(kind=StepKind.SLEEP, name="nap")
APPROVAL = Suspension(kind=StepKind.WAIT, name="approved", signal="approved", until=FOREVER_US)


async def test_the_page_of_a_job_shows_its_steps_and_its_sleep(app: Drumbeat, api: httpx.AsyncClient) -> None:
    id = await sleeper(app, NAP)
    page = (await api.get(f"/jobs/{id}", headers=PAGE)).text
    timeline = page[page.index('data-test="records"') :]
    assert "Step &#39;charge&#39;" in timeline and "Sleep &#39;nap&#39;" in timeline
    assert 'data-test="reason-asleep"' in page and "Asleep" in page
    assert "hunter2" not in page


async def test_the_api_has_steps_and_sends_signals_on_record(app: Drumbeat, api: httpx.AsyncClient) -> None:
    id = await sleeper(app, APPROVAL)
    found = (await api.get(f"/api/v1/jobs/{id}/steps")).json()
    assert [(step["kind"], step["name"], step["until"]) for step in found["steps"]] == [
        ("step", "charge", None),
        ("wait", "approved", None),
    ]
    assert "hunter2" not in str(found) and found["signals"] == []
    reasons = (await api.get(f"/api/v1/jobs/{id}/explain")).json()["reasons"]
    assert reasons[0]["kind"] == "signal" and "waits for the signal 'approved': " in reasons[0]["text"]
    body = {"name": "approved", "payload": {"by": "ann"}, "reason": "as agreed"}
    answer = await api.post(f"/api/v1/jobs/{id}/signal", json=body)
    assert answer.status_code == 200
    [signal] = (await api.get(f"/api/v1/jobs/{id}/steps")).json()["signals"]
    assert (signal["id"], signal["payload"], signal["read_by"]) == (answer.json()["id"], '{"by":"ann"}', None)
    [act] = (await api.get("/api/v1/audit", params={"target": id})).json()["items"]
    assert (act["verb"], act["touched"], act["reason"], act["outcome"]) == ("jobs.signal", 1, "as agreed", "done")
    page = (await api.get(f"/jobs/{id}", headers=PAGE)).text
    assert "Signal &#39;approved&#39; received, not read yet" in page


async def test_lists_say_what_a_suspended_job_waits_for(app: Drumbeat, api: httpx.AsyncClient) -> None:
    """Scheduled alone would say that it has not begun; and a wait without a time-out is due in the year 9000."""
    approval, nap = await sleeper(app, APPROVAL), await sleeper(app, NAP)
    page = (await api.get("/jobs", params={"state": "scheduled"}, headers=PAGE)).text
    rows = {id: page[page.index(f'data-test="row-{id}"') :].partition("</tr>")[0] for id in (approval, nap)}
    assert "waits for the signal &#39;approved&#39;" in rows[approval] and "<time" not in rows[approval]
    assert ">asleep<" in rows[nap] and '<span class="muted">until</span> <time' in rows[nap]
    assert 'data-test="suspension">asleep</span>' in (await api.get(f"/jobs/{nap}", headers=PAGE)).text
    assert "in 69" not in (await api.get(f"/jobs/{approval}", headers=PAGE)).text


async def test_what_to_type_is_set_as_code(app: Drumbeat, api: httpx.AsyncClient) -> None:
    id = await sleeper(app, NAP)
    assert f"<code>drumbeat jobs run-now {id}</code> wakes it" in (await api.get(f"/jobs/{id}", headers=PAGE)).text


async def test_a_job_without_records_has_a_place_for_them(app: Drumbeat, api: httpx.AsyncClient) -> None:
    """live.js fills regions that exist: the first step must appear without a reload, and soon while the job runs."""
    store = await app._internals.store()
    job = await claimed_one(store, await worker(store, queues=("mail",)), queue="mail", task="send_mail")
    page = (await api.get(f"/jobs/{job.id}", headers=PAGE)).text
    assert '<div class="stack" data-region="records" data-refresh="2"></div>' in page
    assert '<div class="stack" data-region="progress" data-refresh="2"></div>' in page


async def test_a_signal_for_nobody_is_refused(app: Drumbeat, api: httpx.AsyncClient) -> None:
    id = await sleeper(app, NAP)
    await app.jobs.cancel(id)
    assert (await api.post(f"/api/v1/jobs/{id}/signal", json={"name": "approved"})).status_code == 409
    assert (await api.post(f"/api/v1/jobs/{new_job_id()}/signal", json={"name": "approved"})).status_code == 404
    assert (await api.get(f"/api/v1/jobs/{new_job_id()}/steps")).status_code == 404


async def test_a_job_that_waits_for_a_signal_has_no_button_to_run_it_now(app: Drumbeat, api: httpx.AsyncClient) -> None:
    waiting, asleep = await sleeper(app, APPROVAL), await sleeper(app, NAP)
    assert "/run-now" not in (await api.get(f"/jobs/{waiting}", headers=PAGE)).text
    assert "/run-now" in (await api.get(f"/jobs/{asleep}", headers=PAGE)).text
    assert (await api.post(f"/api/v1/jobs/{waiting}/run-now", json={})).status_code == 409
