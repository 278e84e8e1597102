"""The boxes of a graph: their words, styles and links. Pure."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.dependencies import Binding, IfParentFails
from drumbeat.core.job import JobState
from drumbeat.core.workflow import GraphEdge, GraphNode, TaskEdge, TaskNode, WorkflowGraph
from drumbeat.durations import from_us
from drumbeat.ids import new_job_id
from drumbeat.web.pages.workflow_graph import TASK_SIZE, collapse, cut_name, draw_jobs, draw_tasks, node_word

NOW = from_us(1_800_000_000_000_000)
LATER = NOW + timedelta(hours=1)


def node(state: JobState = JobState.PENDING, task: str = "render", **facts: Any) -> GraphNode:
    return GraphNode(id=new_job_id(), task=task, state=state, **facts)


def edge(parent: GraphNode, child: GraphNode, if_fails: IfParentFails = IfParentFails.CANCEL) -> GraphEdge:
    return GraphEdge(parent=parent.id, child=child.id, if_fails=if_fails, binding=Binding.NONE)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (node(), "ready"),
        (node(run_at=NOW), "ready"),
        (node(run_at=LATER), "scheduled"),
        (node(run_at=LATER, failures=2), "retrying"),
        (node(run_at=LATER, blocked_on="parents"), "waiting"),
        (node(run_at=LATER, suspended="sleep"), "suspended"),
        *((node(state), str(state)) for state in JobState if state is not JobState.PENDING),
    ],
)
def test_a_node_has_the_word_that_its_job_has(found: GraphNode, word: str) -> None:
    assert node_word(found, NOW) == word


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("short", "short"),
        ("a" * 10, "a" * 10),
        ("shop.orders.fetch", "…ders.fetch"),
        ("abcd.efghijklm", "…efghijklm"),
        ("名" * 7, "…" + "名" * 5),
        ("m" * 10, "…" + "m" * 5),
    ],
)
def test_of_a_long_name_the_end_is_shown(name: str, shown: str) -> None:
    assert cut_name(name, 86) == shown


def test_of_a_long_line_the_beginning_is_shown() -> None:
    waits = node(suspended="signal:approved_by_the_head_of_department", run_at=LATER)
    [box] = draw_jobs(WorkflowGraph(nodes=[waits]), NOW, lambda id: f"/jobs/{id}").boxes
    assert box.line == "signal approved_…"
    assert "signal approved_by_the_head_of_department" in box.title


def test_lines_show_how_their_parent_ended_and_the_policy() -> None:
    done, dead, runs = node(JobState.SUCCEEDED), node(JobState.DEAD), node(JobState.RUNNING)
    child = node(blocked_on="parents")
    edges = [edge(done, child), edge(dead, child, IfParentFails.WAIT), edge(runs, child, IfParentFails.RUN)]
    view = draw_jobs(WorkflowGraph(nodes=[done, dead, runs, child], edges=edges), NOW, lambda id: f"/jobs/{id}")
    assert {line.style for line in view.lines} == {"met p-cancel", "failed p-wait", "open p-run"}
    assert view.policies == ["run", "wait"]
    assert view.words == "4 jobs in 2 layers: 1 succeeded, 1 running, 1 waiting, 1 dead"


def test_a_box_says_what_matters() -> None:
    ended = node(JobState.SUCCEEDED, started_at=NOW, finished_at=NOW + timedelta(seconds=2))
    waits = node(suspended="signal:approved", run_at=LATER)
    again = node(run_at=LATER, failures=2)
    view = draw_jobs(WorkflowGraph(nodes=[ended, waits, again]), NOW, lambda id: f"/jobs/{id}")
    boxes = {box.key: box for box in view.boxes}
    assert boxes[ended.id].line == "succeeded · 2.0 s" and boxes[ended.id].href == f"/jobs/{ended.id}"
    assert boxes[waits.id].line == "signal approved"
    assert boxes[again.id].line == "retrying, 2 failures"


def test_jobs_are_summed_up_by_task() -> None:
    first, second = node(JobState.SUCCEEDED, task="split"), node(blocked_on="parents")
    third, outside = node(), node()
    graph = WorkflowGraph(
        nodes=[first, second, third], edges=[edge(first, second), edge(first, third), edge(outside, third)]
    )
    found = collapse(graph)
    assert {task.task: task.counts for task in found.tasks} == {
        "split": {"succeeded": 1},
        "render": {"waiting": 1, "pending": 1},
    }
    assert found.task_edges == [TaskEdge(parent="split", child="render", count=2)]
    assert collapse(found) == found


def test_one_dead_letter_among_thousands_is_seen() -> None:
    tasks = [
        TaskNode(task="render", counts={"succeeded": 99_999, "dead": 1}),
        TaskNode(task="merge", counts={"waiting": 1}),
    ]
    view = draw_tasks(
        WorkflowGraph(tasks=tasks, task_edges=[TaskEdge(parent="render", child="merge", count=100_000)]),
        lambda task: task,
    )
    render, merge = view.boxes
    assert (render.style, render.line, merge.line) == ("dead", "1 dead of 100,000", "1 waiting")
    assert [share.state for share in render.shares] == ["succeeded", "dead"] and render.shares[1].width > 2
    assert render.shares[-1].x + render.shares[-1].width < TASK_SIZE.width
    assert view.lines[0].title == "100,000 dependencies"
    assert view.states == ["succeeded", "waiting", "dead"]
