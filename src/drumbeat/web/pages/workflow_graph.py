"""The graph of a workflow as its page draws it: boxes of jobs, or of tasks where there are many, with words, styles and links.
Pure, free of HTML; `graph_layout.py` says where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from unicodedata import east_asian_width

import msgspec

from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, IfParentFails
from drumbeat.core.job import Job, JobState, PendingView
from drumbeat.core.suspension import awaited_signal
from drumbeat.core.workflow import FAILED_STATES, GraphNode, TaskEdge, TaskNode, WorkflowGraph
from drumbeat.ids import JobId

from .formatting import between, count, short_id, span
from .graph_layout import NodeSize, lay_out

JobLink = Callable[[str], str]
TaskLink = Callable[[str], str]
MAX_DRAWN_EDGES = 3_000
"""Of jobs; a graph with more is shown by task."""
MAX_OUTSIDE = 50
"""Parents outside of the workflow that are drawn."""
JOB_SIZE = NodeSize()
TASK_SIZE = NodeSize(width=230, height=62, gap_x=26, gap_y=54)
TEXT_MARGIN = 35
"""Pixels of a box that its text leaves free: the icon at the left, and a little at the right."""
_LETTER_WIDTHS = {
    letter: width
    for width, letters in ((4.5, " ,./:;'|!ijlIf()[]-·"), (6.0, '_`rt"*'), (7.5, "cszxL?"), (12.5, "mwMW%@…"))
    for letter in letters
}
BAR_MARGIN = 10
MIN_SHARE = 3.0
"""Pixels: one dead letter among thousands must be visible."""
STATE_ORDER = ("succeeded", "running", "pending", "waiting", "cancelled", "expired", "dead")
"""In a bar, from left to right."""
_LIVE = ("running", "waiting", "pending")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the bar of a task: its jobs of one state."""

    state: str
    x: float
    width: float


class GraphBox(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or all jobs of a task."""

    key: str
    x: int
    y: int
    style: str
    """CSS class and icon: the state."""
    name: str
    """Cut to the width of the box."""
    line: str
    """What is below the name: the state in words."""
    title: str
    href: str
    shares: tuple[Share, ...] = ()


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """The edges that begin at one job and look alike: one path."""

    style: str
    path: str
    title: str = ""


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    words: str
    """A summary, for screen readers."""
    boxes: list[GraphBox]
    lines: list[GraphLine]
    width: int
    height: int
    box_width: int
    box_height: int
    is_by_task: bool
    policies: list[str] = []
    """Those of its edges that are not the default, for the legend."""
    states: list[str] = []
    """Those in the bars of tasks, for the legend."""

    @property
    def shape(self) -> str:
        """Changes whenever boxes move."""
        return f"{len(self.boxes)}/{len(self.lines)}/{self.width}x{self.height}"


def node_word(node: GraphNode, now: datetime) -> str:
    """The word that people see for its state, as `Job.view`; and suspended."""
    view = node.view(now)
    is_suspended = node.suspended is not None and view in (PendingView.SCHEDULED, PendingView.RETRYING)
    return "suspended" if is_suspended else str(view)


def find_outside(graph: WorkflowGraph) -> list[JobId]:
    """Parents that are not among its nodes: of another workflow, of none, or pruned. No more than are drawn."""
    nodes = {node.id for node in graph.nodes}
    return list(dict.fromkeys(edge.parent for edge in graph.edges if edge.parent not in nodes))[:MAX_OUTSIDE]


def draw_jobs(
    graph: WorkflowGraph, now: datetime, link: JobLink, known_outside: Mapping[JobId, Job] | None = None
) -> GraphView:
    """`known_outside`: those of `find_outside` that are on record."""
    nodes = {str(node.id): node for node in graph.nodes}
    outside = {str(id): (known_outside or {}).get(id) for id in find_outside(graph)}
    states = {key: node.state for key, node in nodes.items()} | {key: job.state for key, job in outside.items() if job}
    layout = lay_out([*outside, *nodes], ((edge.parent, edge.child) for edge in graph.edges), JOB_SIZE)
    boxes = []
    for placed in layout.nodes:
        node = nodes.get(placed.key)
        if node is None:
            style, name, line = _describe_outside(placed.key, outside[placed.key], now)
            title = f"{name}\n{line}\n{placed.key}"
        else:
            style, name = node_word(node, now), node.task
            line = _describe(node, style)
            title = f"{node.task}\n{line}\n{node.id}"
        boxes.append(
            GraphBox(
                key=placed.key,
                x=placed.x,
                y=placed.y,
                style=style,
                name=cut_name(name, JOB_SIZE.width - TEXT_MARGIN),
                line=cut_text(line, JOB_SIZE.width - TEXT_MARGIN),
                title=title,
                href=link(placed.key) if placed.key in states else "",
            )
        )
    paths = {(edge.parent, edge.child): edge.path for edge in layout.edges}
    drawn: dict[tuple[str, str], list[str]] = {}
    for edge in graph.edges:
        if (path := paths.pop((edge.parent, edge.child), None)) is not None:
            style = _edge_style(states.get(str(edge.parent)), edge.if_fails)
            drawn.setdefault((str(edge.parent), style), []).append(path)
    words = Counter(node_word(node, now) for node in graph.nodes)
    return GraphView(
        words=f"{_plural(len(nodes), 'job')} in {_plural(_depth(layout.nodes), 'layer')}: {_sum_up(words)}",
        boxes=boxes,
        lines=[GraphLine(style=style, path="".join(some)) for (_, style), some in drawn.items()],
        width=layout.width,
        height=layout.height,
        box_width=JOB_SIZE.width,
        box_height=JOB_SIZE.height,
        is_by_task=False,
        policies=sorted({str(edge.if_fails) for edge in graph.edges} - {str(IfParentFails.CANCEL)}),
    )


def draw_tasks(graph: WorkflowGraph, link: TaskLink) -> GraphView:
    tasks = {each.task: each for each in graph.tasks}
    layout = lay_out(list(tasks), ((edge.parent, edge.child) for edge in graph.task_edges), TASK_SIZE)
    itself = {edge.parent: edge.count for edge in graph.task_edges if edge.parent == edge.child}
    boxes = []
    for placed in layout.nodes:
        task = tasks[placed.key]
        line = _most_important(task.counts)
        title = f"{task.task}\n{_plural(sum(task.counts.values()), 'job')}: {_sum_up(task.counts)}"
        if task.task in itself:
            title += f"\n{_plural(itself[task.task], 'dependency', 'dependencies')} among themselves"
        boxes.append(
            GraphBox(
                key=task.task,
                x=placed.x,
                y=placed.y,
                style="ready" if (state := _task_state(task.counts)) == "pending" else state,
                name=cut_name(task.task, TASK_SIZE.width - TEXT_MARGIN),
                line=line,
                title=title,
                href=link(task.task),
                shares=_shares(task.counts, TASK_SIZE.width - 2 * BAR_MARGIN),
            )
        )
    counts = {(edge.parent, edge.child): edge.count for edge in graph.task_edges}
    return GraphView(
        words=f"{_plural(len(tasks), 'task')} in {_plural(_depth(layout.nodes), 'layer')}",
        boxes=boxes,
        lines=[
            GraphLine(
                style="open",
                path=edge.path,
                title=f"{_plural(counts[edge.parent, edge.child], 'dependency', 'dependencies')}",
            )
            for edge in layout.edges
        ],
        width=layout.width,
        height=layout.height,
        box_width=TASK_SIZE.width,
        box_height=TASK_SIZE.height,
        is_by_task=True,
        states=[state for state in STATE_ORDER if any(task.counts.get(state) for task in graph.tasks)],
    )


def collapse(graph: WorkflowGraph) -> WorkflowGraph:
    """Its jobs by task, as the store gives those of a large workflow."""
    if not graph.nodes:
        return graph
    tasks = {str(node.id): node.task for node in graph.nodes}
    counts: dict[str, Counter[str]] = {}
    for node in graph.nodes:
        word = "waiting" if node.blocked_on == BLOCKED_ON_PARENTS else str(node.state)
        counts.setdefault(node.task, Counter())[word] += 1
    known = [edge for edge in graph.edges if edge.parent in tasks and edge.child in tasks]
    edges = Counter((tasks[edge.parent], tasks[edge.child]) for edge in known)
    return WorkflowGraph(
        tasks=[TaskNode(task=task, counts=dict(some)) for task, some in counts.items()],
        task_edges=[TaskEdge(parent=parent, child=child, count=n) for (parent, child), n in edges.items()],
        capped=graph.capped,
    )


def cut_name(name: str, width: float) -> str:
    """Cut to this many pixels: its end, which says more than the module that it begins with."""
    cut = cut_text(name[::-1], width)[::-1]
    return name if cut == name else "…" + cut[1:].lstrip(".")


def cut_text(text: str, width: float) -> str:
    """Cut to this many pixels, in bold letters of 12 pixels of a wide font."""
    if sum(map(_letter_width, text)) <= width:
        return text
    left, kept = width - _letter_width("…"), 0
    for letter in text:
        left -= _letter_width(letter)
        if left < 0:
            break
        kept += 1
    return text[:kept] + "…"


def _letter_width(letter: str) -> float:
    """Of DejaVu Sans, the widest of the usual fonts, as a browser measured it."""
    if letter in _LETTER_WIDTHS:
        return _LETTER_WIDTHS[letter]
    return 12.5 if east_asian_width(letter) in "WF" else 10.0 if letter.isupper() else 8.5


def _describe(node: GraphNode, word: str) -> str:
    if node.suspended is not None and word == "suspended":
        signal = awaited_signal(node.suspended)
        return "asleep" if signal is None else f"signal {signal}"
    if node.state in (JobState.PENDING, JobState.RUNNING):
        return f"{word}, {_plural(node.failures, 'failure')}" if node.failures else word
    took = between(node.started_at, node.finished_at)
    return f"{word} · {took}" if node.started_at is not None and took != span(None) else word


def _describe_outside(id: str, job: Job | None, now: datetime) -> tuple[str, str, str]:
    """Style, name and line."""
    if job is None:
        return "left", f"job {short_id(id)}", "no longer here"
    word = str(job.view(now))
    return word, job.task, f"outside · {word}"


def _edge_style(parent: JobState | None, policy: IfParentFails) -> str:
    """None: it is no longer on record."""
    if parent is JobState.SUCCEEDED:
        state = "met"
    else:
        state = "failed" if parent in FAILED_STATES else "gone" if parent is None else "open"
    return f"{state} p-{policy}"


def _task_state(counts: dict[str, int]) -> str:
    """What needs attention first; then what goes on; then how it ended."""
    order = ("dead", *_LIVE, "cancelled", "expired", "succeeded")
    return next((state for state in order if counts.get(state)), "succeeded")


def _most_important(counts: dict[str, int]) -> str:
    """3 dead of 9,523."""
    state, total = _task_state(counts), sum(counts.values())
    number = counts.get(state, 0)
    return f"{count(number)} {state}" if number == total else f"{count(number)} {state} of {count(total)}"


def _shares(counts: dict[str, int], width: int) -> tuple[Share, ...]:
    total, x, made = sum(counts.values()), float(BAR_MARGIN), list[Share]()
    wide_by_state = {state: max(MIN_SHARE, width * counts[state] / total) for state in STATE_ORDER if counts.get(state)}
    too_wide = sum(wide_by_state.values()) / width
    for state in STATE_ORDER:
        if state in wide_by_state:
            wide = wide_by_state[state] / too_wide
            made.append(Share(state="ready" if state == "pending" else state, x=round(x, 2), width=round(wide, 2)))
            x += wide
    return tuple(made)


def _sum_up(counts: dict[str, int]) -> str:
    known = [state for state in STATE_ORDER if counts.get(state)]
    known += [state for state in counts if state not in STATE_ORDER and counts[state]]
    return ", ".join(f"{count(counts[state])} {state}" for state in known) or "no jobs"


def _depth(nodes: Iterable[object]) -> int:
    return len({getattr(node, "layer", 0) for node in nodes})


def _plural(number: int, word: str, many: str | None = None) -> str:
    return f"{count(number)} {word if number == 1 else many or word + 's'}"
