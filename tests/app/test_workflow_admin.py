"""`app.workflows`, parents and children in `app.jobs`, and what explain and doctor say of them. On every engine."""

from collections.abc import AsyncIterator

import pytest

from drumbeat import Drumbeat
from drumbeat.admin.dependency_checks import AwaitedLetter, DependencySample, check_dependencies, read_dependencies
from drumbeat.core.dependencies import Binding, IfParentFails, Miscount
from drumbeat.core.health import HealthLevel
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.workflow import Workflow, WorkflowState
from drumbeat.durations import from_us
from drumbeat.errors import InvalidArguments, WorkflowNotFound
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.store.protocol import Store
from tests.contract import making
from tests.contract.flows import DIAMOND, add_flow, end_job
from tests.contract.graphs import add_child, settle

DAY = 24 * 3_600_000_000


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url) as app:
        yield app


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


@pytest.fixture
async def hand(store: Store) -> InstanceId:
    return await making.worker(store)


async def test_workflows_are_listed_newest_first_in_pages_and_by_name(app: Drumbeat, store: Store) -> None:
    made = [(await add_flow(store, {"a": ()}, name))[0] for name in ("x", "y", "x", "y", "x")]
    assert [each.id for each in await app.workflows.list()] == made[::-1]
    assert [each.id for each in await app.workflows.list(limit=2)] == made[:2:-1]
    assert [each.id for each in await app.workflows.list(before=made[3], limit=2)] == [made[2], made[1]]
    assert [each.id for each in await app.workflows.list(name="y")] == [made[3], made[1]]
    assert await app.workflows.list(name="z") == []
    for wrong in ({"limit": 0}, {"before": "x"}, {"name": ""}, {"name": 3}):
        with pytest.raises(InvalidArguments):
            await app.workflows.list(**wrong)


async def test_a_workflow_tells_its_state_in_one_word(app: Drumbeat, store: Store, hand: InstanceId) -> None:
    id, jobs = await add_flow(store, DIAMOND, labels={"customer": "ada"})
    states = [(await app.workflows.show(id)).state]
    for word in ("first", "left", "right", "last"):
        await end_job(store, hand, jobs[word])
        states.append((await app.workflows.show(id)).state)
    assert states == [WorkflowState.PENDING, *[WorkflowState.RUNNING] * 3, WorkflowState.SUCCEEDED]
    found = await app.workflows.show(id)
    assert (found.name, found.labels, found.counts["succeeded"]) == ("invoice-42", {"customer": "ada"}, 4)


def workflow(*, cancelled: bool = False, **counts: int) -> Workflow:
    at = from_us(1_000_000)
    return Workflow(id="x", name="x", labels={}, created_at=at, cancelled_at=at if cancelled else None, counts=counts)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (workflow(pending=1, waiting=3), "pending"),
        (workflow(running=1, waiting=3), "running"),
        (workflow(succeeded=1, pending=3), "running"),
        (workflow(succeeded=1, waiting=3), "running"),
        (workflow(dead=1, pending=3), "running"),
        (workflow(dead=1, waiting=3), "waiting"),
        (workflow(running=1, cancelled=True), "cancelling"),
        (workflow(succeeded=3), "succeeded"),
        (workflow(succeeded=3, dead=0), "succeeded"),
        (workflow(succeeded=3, dead=1), "failed"),
        (workflow(succeeded=3, expired=1), "failed"),
        (workflow(succeeded=3, cancelled=True), "cancelled"),
    ],
)
def test_every_state_of_a_workflow(found: Workflow, state: str) -> None:
    assert str(found.state) == state


async def test_what_is_not_there_is_not_found(app: Drumbeat) -> None:
    for id in ("nonsense", new_job_id()):
        for call in (app.workflows.show, app.workflows.graph, app.workflows.cancel, app.workflows.replay):
            with pytest.raises(WorkflowNotFound):
                await call(id)


async def test_a_cancelled_workflow_is_counted_first_and_then_ends(
    app: Drumbeat, store: Store, hand: InstanceId
) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    await end_job(store, hand, jobs["first"])
    [left, *_] = await making.claim(store, hand, limit=1)
    counted = await app.workflows.cancel(id, dry_run=True)
    assert (counted.matched, counted.touched, counted.dry_run) == (3, 0, True)
    assert (await app.workflows.show(id)).cancelled_at is None
    done = await app.workflows.cancel(id)
    assert (done.touched, done.requested) == (3, 1)
    assert (await app.workflows.show(id)).state is WorkflowState.CANCELLING
    await making.end(store, hand, left, OutcomeKind.CANCELLED)
    await settle(store)
    assert (await app.workflows.show(id)).state is WorkflowState.CANCELLED
    text = (await app.jobs.explain(jobs["last"])).reasons[0].text
    assert "it was cancelled" in text and "its workflow 'invoice-42' was cancelled" in text
    assert (await app.jobs.explain(jobs["last"])).reasons[0].facts["workflow"] == id


async def test_the_failed_of_a_workflow_are_counted_and_replayed(app: Drumbeat, store: Store, hand: InstanceId) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    await end_job(store, hand, jobs["first"])
    await end_job(store, hand, jobs["left"], OutcomeKind.DEAD)
    assert (await app.jobs.show(jobs["last"])).state is JobState.CANCELLED
    reason = (await app.jobs.explain(jobs["last"])).reasons[0]
    assert f"because its parent {jobs['left']} (task left) died" in reason.text
    assert reason.facts["parent"] == jobs["left"]
    counted = await app.workflows.replay(id, dry_run=True)
    assert (counted.matched, counted.touched) == (1, 0)
    assert (await app.workflows.replay(id)).touched == 1
    await settle(store)
    assert (await app.jobs.show(jobs["last"])).blocked_on == "parents"
    for word in ("left", "right", "last"):
        await end_job(store, hand, jobs[word])
    assert (await app.workflows.show(id)).state is WorkflowState.SUCCEEDED


async def test_a_graph_and_the_jobs_of_a_workflow(app: Drumbeat, store: Store) -> None:
    id, jobs = await add_flow(store, DIAMOND)
    await add_flow(store, DIAMOND, "another")
    graph = await app.workflows.graph(id)
    assert [node.id for node in graph.nodes] == list(jobs.values())
    assert {(edge.parent, edge.child) for edge in graph.edges} == {
        (jobs[parent], jobs[word]) for word, parents in DIAMOND.items() for parent in parents
    }
    found = await app.jobs.list(workflow=id, state="waiting")
    assert sorted(job.id for job in found) == sorted([jobs["left"], jobs["right"], jobs["last"]])
    with pytest.raises(InvalidArguments, match="workflow must be the id of a workflow"):
        await app.jobs.list(workflow="x")


async def test_parents_and_children_of_a_job(app: Drumbeat, store: Store, hand: InstanceId) -> None:
    _, jobs = await add_flow(store, DIAMOND, if_fails=IfParentFails.RUN)
    await end_job(store, hand, jobs["first"])
    await end_job(store, hand, jobs["left"])
    parents = await app.jobs.parents(jobs["last"])
    assert [(each.id, each.is_open, each.state) for each in parents] == [
        (jobs["right"], True, JobState.PENDING),
        (jobs["left"], False, JobState.SUCCEEDED),
    ]
    assert {(each.if_fails, each.binding) for each in parents} == {(IfParentFails.RUN, Binding.NONE)}
    assert [each.id for each in await app.jobs.parents(jobs["last"], limit=1)] == [jobs["right"]]
    children = await app.jobs.children(jobs["first"])
    assert [(each.id, each.is_open) for each in children] == [(jobs["left"], False), (jobs["right"], False)]
    assert await app.jobs.children(jobs["last"]) == await app.jobs.parents(jobs["first"]) == []


async def test_explain_names_the_first_parents_with_their_states(app: Drumbeat, store: Store, hand: InstanceId) -> None:
    graph = {f"p{number}": () for number in range(5)} | {"last": tuple(f"p{number}" for number in range(5))}
    _, jobs = await add_flow(store, graph)
    [reason, *_] = (await app.jobs.explain(jobs["last"])).reasons
    named = ", ".join(f"{jobs[f'p{number}']} (task p{number}, pending)" for number in range(3))
    assert reason.text == f"it waits for 5 of its parents: {named} and 2 more"
    assert (reason.kind, reason.facts["open"]) == ("parents", 5)
    assert reason.facts["parents"] == " ".join(jobs[f"p{number}"] for number in range(3))
    for number in range(4):
        await end_job(store, hand, jobs[f"p{number}"])
    [reason, *_] = (await app.jobs.explain(jobs["last"])).reasons
    assert reason.text == f"it waits for its parent {jobs['p4']} (task p4, pending)"
    with pytest.raises(InvalidArguments, match="waits for 1 parent: it starts when they have ended"):
        await app.jobs.run_now(jobs["last"])


async def test_explain_says_which_dead_letter_must_be_replayed(app: Drumbeat, store: Store, hand: InstanceId) -> None:
    letter = await making.dead_letter(store, hand)
    child = await add_child(store, letter.id, if_fails=IfParentFails.WAIT)
    reasons = (await app.jobs.explain(child)).reasons
    assert reasons[0].kind == "dead_letter" and "parents" not in [str(each.kind) for each in reasons], "told twice"
    assert f"waits for the dead letter {letter.id} (task greet) to be replayed" in reasons[0].text
    assert reasons[0].facts == {"parent": letter.id, "task": "greet"}


async def test_the_doctor_tells_of_old_dead_letters_that_jobs_wait_for(
    app: Drumbeat, store: Store, hand: InstanceId
) -> None:
    letter = await making.dead_letter(store, hand)
    for _ in range(2):
        await add_child(store, letter.id, if_fails=IfParentFails.WAIT)
    found = {each.name: each for each in await app.system.doctor()}
    assert found["dependencies"].level is HealthLevel.OK

    sample = await read_dependencies(store, await app.jobs.list(state="waiting"), 1_000)
    [awaited] = sample.letters
    assert (awaited.id, awaited.task, awaited.waiting, list(sample.miscounts)) == (letter.id, "greet", 2, [])
    [check] = check_dependencies(sample, awaited.died_at + 2 * DAY)
    assert (check.name, check.level) == (f"dead letter {letter.id}", HealthLevel.WARN)
    assert check.value == "2 jobs wait for this dead letter (task greet), which died 2d ago"
    assert f"drumbeat dead replay {letter.id}" in check.advice


def test_the_doctor_tells_of_wrong_counts_and_of_no_more_than_a_few() -> None:
    wrong = [Miscount(id=new_job_id(), counted=2, actual=1) for _ in range(7)]
    old = [AwaitedLetter(id=new_job_id(), task="t", died_at=number, waiting=1) for number in range(7)]
    found = list(check_dependencies(DependencySample(miscounts=wrong, letters=old), 3 * DAY))
    assert [each.level for each in found] == [HealthLevel.WARN] * 6 + [HealthLevel.BAD] * 6
    assert found[0].value.startswith("1 job waits for this dead letter")
    assert found[5].value.startswith("2 older dead letters more")
    assert (found[6].name, found[6].value) == (f"job {wrong[0].id}", "it counts 2 open parents, and has 1")
    assert "enqueue it again" in found[6].advice and found[11].value.startswith("2 jobs more")


def test_the_same_in_code_without_a_loop(store_url: str) -> None:
    app = Drumbeat(store_url)
    try:
        assert app.sync.workflows.list() == []
        with pytest.raises(WorkflowNotFound):
            app.sync.workflows.show(new_job_id())
        assert app.sync.jobs.list(workflow=new_job_id()) == []
    finally:
        app.sync.close()
