"""Layout of a graph in layers: each node below all of its parents, in an order with few crossings. Pure and deterministic.

    layers by the longest path > long edges in pieces > order by neighbours, the best of a few sweeps > places > curves

A layer with many nodes is broken into the rows of a grid; edges reach those inside through the gaps between its columns, so
that many look like one. A circle (tasks of a collapsed graph may have one) is opened at the edge that a walk in the order of
the nodes meets last; that edge is drawn upwards.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

MAX_SIDE_BY_SIDE = 8
"""A layer with more nodes is broken into rows."""
ROW_LENGTH = 5
"""The longest of these rows: it fits beside the navigation of a small laptop."""
SWEEPS = 8
MAX_PIECES = 4_000
"""Of long edges, all together. With more of them edges go straight, below the nodes that are between."""


class NodeSize(msgspec.Struct, frozen=True, kw_only=True):
    """In pixels."""

    width: int = 172
    height: int = 44
    gap_x: int = 18
    gap_y: int = 46
    gap_row: int = 14
    """Between two rows of one layer."""
    lane: int = 8
    """The width that a passing edge takes in a layer, and the gap to the next one."""
    margin: int = 16


class PlacedNode(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    layer: int
    x: int
    y: int
    """Of its upper left corner."""


class PlacedEdge(msgspec.Struct, frozen=True, kw_only=True):
    parent: str
    child: str
    path: str
    """Of SVG, from the lower edge of the parent to the upper one of the child."""


class GraphLayout(msgspec.Struct, frozen=True, kw_only=True):
    nodes: list[PlacedNode]
    """By layer, from left to right: the order in which the keyboard visits them."""
    edges: list[PlacedEdge]
    width: int
    height: int


class _Item:
    """A node, or the piece of a long edge in one layer."""

    def __init__(self, key: str, layer: int, width: int, place: int) -> None:
        self.key = key
        self.layer = layer
        self.width = width
        self.place = place
        """In its layer."""
        self.above: list[_Item] = []
        self.below: list[_Item] = []
        self.x = 0.0
        """Of its middle."""
        self.y = 0
        self.grid: tuple[int, int] | None = None
        """Of a node in a grid: the upper and lower edge of the grid."""

    @property
    def is_node(self) -> bool:
        return self.key != ""


def lay_out(keys: Sequence[str], edges: Iterable[tuple[str, str]], size: NodeSize | None = None) -> GraphLayout:
    """`edges` are pairs of parent and child; those to or from other keys, to itself, and repeated ones are left out."""
    size = size or NodeSize()
    known = set(keys)
    wanted = [each for each in dict.fromkeys(edges) if each[0] in known and each[1] in known and each[0] != each[1]]
    back = _find_back_edges(keys, wanted)
    downward = [each for each in wanted if each not in back]
    depth = _find_layers(keys, downward)
    items = {key: _Item(key, depth[key], size.width, 0) for key in keys}
    layers: list[list[_Item]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for item in items.values():
        layers[item.layer].append(item)
    routes = _link(items, layers, downward, size)
    _order(layers)
    height = _place(layers, size)
    left = min((item.x - item.width / 2 for layer in layers for item in layer), default=0.0) - size.margin
    right = max((item.x + item.width / 2 for layer in layers for item in layer), default=0.0) + size.margin
    for layer in layers:
        for item in layer:
            item.x = round(item.x - left)
    placed = [
        PlacedNode(key=item.key, layer=item.layer, x=round(item.x - size.width / 2), y=item.y)
        for layer in layers
        for item in layer
        if item.is_node
    ]
    drawn = [
        PlacedEdge(
            parent=parent, child=child, path=_draw(routes.get((parent, child)), items[parent], items[child], size)
        )
        for parent, child in wanted
    ]
    return GraphLayout(nodes=placed, edges=drawn, width=round(right - left), height=height)


def _find_back_edges(keys: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that close a circle, by a walk from each node downwards. None in a graph without circles."""
    children: dict[str, list[str]] = {key: [] for key in keys}
    for parent, child in edges:
        children[parent].append(child)
    found: set[tuple[str, str]] = set()
    done: set[str] = set()
    for start in keys:
        # An explicit stack: a chain may be longer than Python's own goes.
        on_path = {start: iter(children[start])} if start not in done else {}
        while on_path:
            node = next(reversed(on_path))
            for child in on_path[node]:
                if child in on_path:
                    found.add((node, child))
                elif child not in done:
                    on_path[child] = iter(children[child])
                    break
            else:
                done.add(node)
                del on_path[node]
    return found


def _find_layers(keys: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The length of the longest path to each node."""
    children: dict[str, list[str]] = {key: [] for key in keys}
    open_parents = dict.fromkeys(keys, 0)
    for parent, child in edges:
        children[parent].append(child)
        open_parents[child] += 1
    depth = dict.fromkeys(keys, 0)
    ready = [key for key in keys if not open_parents[key]]
    for key in ready:
        for child in children[key]:
            depth[child] = max(depth[child], depth[key] + 1)
            open_parents[child] -= 1
            if not open_parents[child]:
                ready.append(child)
    return depth


def _link(
    items: dict[str, _Item], layers: list[list[_Item]], edges: Sequence[tuple[str, str]], size: NodeSize
) -> dict[tuple[str, str], list[_Item]]:
    """Make neighbours of the ends of each edge; of a long one with a piece in each layer between. Returns those pieces."""
    pieces = sum(items[child].layer - items[parent].layer - 1 for parent, child in edges)
    in_rows = {number for number, layer in enumerate(layers) if len(layer) > MAX_SIDE_BY_SIDE}
    routes: dict[tuple[str, str], list[_Item]] = {}
    for parent, child in edges:
        last, route = items[parent], list[_Item]()
        between = range(last.layer + 1, items[child].layer) if pieces <= MAX_PIECES else ()
        for number in between:
            if number not in in_rows:
                piece = _Item("", number, size.lane, 0)
                layers[number].append(piece)
                route.append(piece)
        for item in (*route, items[child]):
            last.below.append(item)
            item.above.append(last)
            last = item
        routes[parent, child] = route
    return routes


def _order(layers: list[list[_Item]]) -> None:
    """Sort each layer by the middle of its neighbours, downwards and upwards in turn; the order with fewest crossings stays."""
    _number(layers)
    best, fewest = [layer[:] for layer in layers], _count_crossings(layers)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        for layer in layers[1:] if down else layers[-2::-1]:
            middles = {id(item): _middle(item.above if down else item.below, item.place) for item in layer}
            layer.sort(key=lambda item: (middles[id(item)], item.place))
            _number([layer])
        if (crossings := _count_crossings(layers)) < fewest:
            best, fewest = [layer[:] for layer in layers], crossings
    layers[:] = best
    _number(layers)


def _number(layers: list[list[_Item]]) -> None:
    for layer in layers:
        for place, item in enumerate(layer):
            item.place = place


def _middle(neighbours: list[_Item], otherwise: float) -> float:
    return sum(each.place for each in neighbours) / len(neighbours) if neighbours else otherwise


def _count_crossings(layers: list[list[_Item]]) -> int:
    """Between neighbouring items, with their ends sorted: an edge crosses those that began before it and end after it."""
    crossings = 0
    for layer in layers:
        ends: list[int] = []
        for item in layer:
            places = sorted(below.place for below in item.below)
            crossings += sum(len(ends) - bisect_right(ends, place) for place in places)
            for place in places:
                insort(ends, place)
    return crossings


def _place(layers: list[list[_Item]], size: NodeSize) -> int:
    """Set x and y of all items; returns the height of the whole."""
    y = size.margin
    rows: list[list[list[_Item]]] = []
    for layer in layers:
        is_grid = len(layer) > MAX_SIDE_BY_SIDE and all(item.is_node for item in layer)
        length = _even_length(len(layer)) if is_grid else len(layer)
        in_layer = [layer[first : first + length] for first in range(0, len(layer), length)]
        top, lower_edge = y, y + len(in_layer) * (size.height + size.gap_row) - size.gap_row
        for row in in_layer:
            for item in row:
                item.y = y
                item.grid = (top, lower_edge) if is_grid else None
            y += size.height + size.gap_row
        y += size.gap_y - size.gap_row
        rows.append(in_layer)
    for in_layer in rows:
        # The columns of a grid are those of its first row.
        _settle(in_layer[0], [0.0] * len(in_layer[0]), size)
        for row in in_layer[1:]:
            for item, above in zip(row, in_layer[0], strict=False):
                item.x = above.x
    for down in (True, False, True):
        for in_layer in rows if down else rows[::-1]:
            if len(in_layer) == 1:
                [row] = in_layer
                _settle(row, [_wanted_x(item, down=down) for item in row], size)
    return max(y - size.gap_y, 0) + size.margin


def _even_length(count: int) -> int:
    """Of rows that are about equally long."""
    rows = -(-count // ROW_LENGTH)
    return -(-count // rows)


def _wanted_x(item: _Item, *, down: bool) -> float:
    """Above or below the middle of its neighbours; a piece of an edge is drawn to both, so that it goes straight."""
    near = item.above + item.below if not item.is_node else (item.above if down else item.below) or item.above
    near = near or item.below
    return sum(each.x for each in near) / len(near) if near else item.x


def _settle(row: list[_Item], wanted: Sequence[float], size: NodeSize) -> None:
    """As near to where they want to be as their order and widths allow: least squares, by pooling those that are in each
    other's way."""
    offsets = [0.0]
    for left, right in pairwise(row):
        gap = size.gap_x if left.is_node or right.is_node else size.lane
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + gap)
    pools: list[tuple[float, int]] = []
    """Sum of the wished places of the first of each pool, and how many they are."""
    for place, wish in enumerate(wanted):
        total, count = wish - offsets[place], 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    firsts = [total / count for total, count in pools for _ in range(count)]
    for item, first, offset in zip(row, firsts, offsets, strict=True):
        item.x = first + offset


def _draw(route: list[_Item] | None, parent: _Item, child: _Item, size: NodeSize) -> str:
    if route is None:
        return _draw_upwards(parent, child, size)
    x, y = round(parent.x), parent.y + size.height
    made = f"M{x} {y}"
    half_gap = size.gap_row // 2
    if parent.grid is not None and y < parent.grid[1]:
        # To the right of its column, and there down to the lower edge of the grid.
        x, y = x + size.width // 2 + size.gap_x // 4, parent.grid[1]
        made += f"v{half_gap}H{x}V{y}"
    for item in (*route, child):
        to, until = round(item.x), item.y
        is_inside = item.grid is not None and item.y > item.grid[0]
        if is_inside and item.grid is not None:
            to, until = to - size.width // 2 - size.gap_x // 4, item.grid[0]
        bend = (until - y) // 2
        made += f"V{until}" if to == x else f"C{x} {y + bend} {to} {until - bend} {to} {until}"
        if is_inside:
            to = round(item.x)
            made += f"V{item.y - half_gap}H{to}V{item.y}"
        x, y = to, item.y
        if not item.is_node:
            y += size.height
            made += f"V{y}"
    return made


def _draw_upwards(parent: _Item, child: _Item, size: NodeSize) -> str:
    """From the right side of the lower one around to the right side of the upper one."""
    x, y = round(parent.x + size.width / 2), parent.y + size.height // 2
    to, at = round(child.x + size.width / 2), child.y + size.height // 2
    out = max(x, to) + size.margin
    return f"M{x} {y}C{out} {y} {out} {at} {to} {at}"
