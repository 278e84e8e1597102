"""The layout of graphs, by property: every edge goes down, nothing overlaps, the same graph always looks the same."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.web.pages.graph_layout import ROW_LENGTH, GraphLayout, NodeSize, PlacedNode, lay_out

SIZE = NodeSize()
Edges = list[tuple[str, str]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], Edges]:
    """Of up to 40 nodes, without circles; named so that their order says nothing."""
    count = draw(st.integers(1, 40))
    keys = draw(st.permutations([f"n{number}" for number in range(count)]))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [(keys[min(pair)], keys[max(pair)]) for pair in draw(st.lists(pairs, max_size=80)) if pair[0] != pair[1]]
    return draw(st.permutations(keys)), edges


@st.composite
def circles(draw: st.DrawFn) -> tuple[list[str], Edges]:
    keys = [f"n{number}" for number in range(draw(st.integers(1, 12)))]
    pairs = st.tuples(st.sampled_from(keys), st.sampled_from(keys))
    return keys, draw(st.lists(pairs, max_size=40))


def by_key(layout: GraphLayout) -> dict[str, PlacedNode]:
    return {node.key: node for node in layout.nodes}


def overlaps(one: PlacedNode, other: PlacedNode) -> bool:
    return abs(one.x - other.x) < SIZE.width and abs(one.y - other.y) < SIZE.height


def check_places(layout: GraphLayout) -> None:
    assert [pair for pair in combinations(layout.nodes, 2) if overlaps(*pair)] == []
    for node in layout.nodes:
        assert 0 <= node.x <= layout.width - SIZE.width
        assert 0 <= node.y <= layout.height - SIZE.height


@given(graphs())
def test_every_edge_goes_down_and_no_nodes_overlap(graph: tuple[list[str], Edges]) -> None:
    keys, edges = graph
    layout = lay_out(keys, edges)
    placed = by_key(layout)
    assert sorted(placed) == sorted(keys)
    for parent, child in edges:
        assert placed[child].layer > placed[parent].layer
        assert placed[child].y >= placed[parent].y + SIZE.height
    assert {(edge.parent, edge.child) for edge in layout.edges} == set(edges)
    check_places(layout)


@given(graphs())
def test_a_node_is_in_the_layer_below_its_lowest_parent(graph: tuple[list[str], Edges]) -> None:
    keys, edges = graph
    placed = by_key(lay_out(keys, edges))
    for key in keys:
        parents = [placed[parent].layer for parent, child in edges if child == key]
        assert placed[key].layer == max(parents, default=-1) + 1


@given(graphs())
def test_an_edge_begins_at_its_parent_and_ends_at_its_child(graph: tuple[list[str], Edges]) -> None:
    layout = lay_out(*graph)
    placed = by_key(layout)
    for edge in layout.edges:
        parent, child = placed[edge.parent], placed[edge.child]
        assert edge.path.startswith(f"M{parent.x + SIZE.width // 2} {parent.y + SIZE.height}")
        assert edge.path.endswith(f"{child.y}")


@given(circles())
def test_circles_do_not_disturb_it(graph: tuple[list[str], Edges]) -> None:
    layout = lay_out(*graph)
    assert sorted(by_key(layout)) == sorted(graph[0])
    assert {(edge.parent, edge.child) for edge in layout.edges} == {pair for pair in graph[1] if pair[0] != pair[1]}
    check_places(layout)


@settings(max_examples=20)
@given(graphs())
def test_the_same_graph_looks_the_same(graph: tuple[list[str], Edges]) -> None:
    assert lay_out(*graph) == lay_out(list(graph[0]), list(graph[1]))


def test_a_chain_is_a_straight_column() -> None:
    keys = [f"n{number}" for number in range(200)]
    layout = lay_out(keys, list(pairwise(keys)))
    assert {node.x for node in layout.nodes} == {SIZE.margin}
    assert not any("C" in edge.path for edge in layout.edges)


def test_edges_that_need_not_cross_do_not() -> None:
    """Two diamonds side by side, whose nodes are given in turns."""
    keys = ["a", "x", "c", "z", "b", "y", "d", "w"]
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("x", "y"), ("x", "z"), ("y", "w"), ("z", "w")]
    placed = by_key(lay_out(keys, edges))
    ours, theirs = [placed[key].x for key in "bc"], [placed[key].x for key in "yz"]
    assert max(ours) < min(theirs) or max(theirs) < min(ours)


def test_a_wide_layer_stands_in_rows() -> None:
    children = [f"c{number}" for number in range(198)]
    edges = [("first", key) for key in children] + [(key, "last") for key in children]
    layout = lay_out(["first", *children, "last"], edges)
    check_places(layout)
    rows: dict[int, int] = {}
    for node in layout.nodes:
        if node.layer == 1:
            rows[node.y] = rows.get(node.y, 0) + 1
    assert max(rows.values()) == ROW_LENGTH and len(rows) == 40
    columns = {node.x for node in layout.nodes if node.layer == 1}
    assert len(columns) == ROW_LENGTH
    placed = by_key(layout)
    assert placed["last"].y > max(rows)
    assert abs(placed["first"].x - placed["last"].x) <= 2


def test_a_long_edge_goes_around_what_is_between() -> None:
    layout = lay_out(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    [long] = [edge for edge in layout.edges if (edge.parent, edge.child) == ("a", "c")]
    middle = by_key(layout)["b"]
    passing = int(long.path.split("C")[1].split(" ")[4].split("V")[0])
    assert not middle.x <= passing <= middle.x + SIZE.width


def test_an_empty_graph_has_a_layout() -> None:
    layout = lay_out([], [])
    assert (layout.nodes, layout.edges) == ([], []) and layout.width > 0 and layout.height > 0
