"""Mistakes in Python: edits of the text at the places that its syntax tree names.

Skipped, as nothing depends on them: logging, `__repr__`, blocks for type checkers, assertions, messages of errors.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.mutation.mutants import Edit

OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
BOUNDARIES: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
OPERATOR = re.compile(r"not\s+in|is\s+not|is|in|[<>]=?|[!=]=")
LOGGERS = {"log", "logger", "logging", "_log", "_logger"}
SKIPPED_FUNCTIONS = {"__repr__", "__str__", "__rich_repr__"}


def find_edits(source: str) -> Iterator[Edit]:
    return PythonEdits(source).find()


class PythonEdits:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tree = ast.parse(source)
        # The tree counts columns in bytes of UTF-8.
        self._lines = [line.encode() for line in source.splitlines(keepends=True)]
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def find(self) -> Iterator[Edit]:
        yield from self._visit(self._tree)

    def _visit(self, node: ast.AST) -> Iterator[Edit]:
        if _is_skipped(node):
            return
        yield from self._mutate(node)
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list", "type_params"}:
                continue
            children = value if isinstance(value, list) else [value]
            if isinstance(value, list) and all(isinstance(child, ast.stmt) for child in value):
                yield from self._swap_statements(value)
            for child in children:
                if isinstance(child, ast.AST):
                    yield from self._visit(child)

    def _mutate(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare():
                yield from self._compare(node)
            case ast.BoolOp():
                yield from self._and_or(node)
            case ast.UnaryOp(op=ast.Not()):
                start = self._span(node)[0]
                yield Edit("removed_not", start, self._span(node.operand)[0], self._gap_without_not(node))
            case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int() as number)) if not _is_flag(number):
                start, end = self._span(node.right)
                yield Edit("off_by_one", start, end, str(number - 1 if number else 1))
            case ast.Subscript(slice=ast.Slice() as part):
                for bound in (part.lower, part.upper):
                    if bound is not None:
                        yield from self._shift(bound)
            case ast.Subscript(slice=ast.Constant(value=int() as number), ctx=ast.Load()) if number >= 0:
                start, end = self._span(node.slice)
                yield Edit("off_by_one", start, end, str(number + 1))
            case ast.Call(func=ast.Name(id="range"), args=[*_, _] as bounds):
                yield from self._shift(bounds[min(1, len(bounds) - 1)])
            case ast.Expr(value=ast.Call() | ast.Await()):
                start, end = self._span(node)
                yield Edit("dropped_call", start, end, "pass")
            case ast.If() | ast.IfExp():
                yield from self._swap_branch(node.test)
            case _:
                pass
        if isinstance(node, ast.Await):
            start = self._span(node)[0]
            word = re.compile(r"await\s*").match(self._source, start)
            assert word is not None
            yield Edit("dropped_await", start, word.end(), "")

    def _compare(self, node: ast.Compare) -> Iterator[Edit]:
        operands = [node.left, *node.comparators]
        for operator, (left, right) in zip(node.ops, pairwise(operands), strict=True):
            gap_start, gap_end = self._span(left)[1], self._span(right)[0]
            found = OPERATOR.search(self._source, gap_start, gap_end)
            if found is None:
                continue
            yield Edit("comparison", found.start(), found.end(), OPPOSITES[type(operator)])
            if type(operator) in BOUNDARIES:
                yield Edit("boundary", found.start(), found.end(), BOUNDARIES[type(operator)])

    def _and_or(self, node: ast.BoolOp) -> Iterator[Edit]:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            found = re.compile(rf"\b{word}\b").search(self._source, self._span(left)[1], self._span(right)[0])
            if found is not None:
                yield Edit("and_or", found.start(), found.end(), other)

    def _gap_without_not(self, node: ast.UnaryOp) -> str:
        gap = self._source[self._span(node)[0] : self._span(node.operand)[0]]
        return gap.removeprefix("not").lstrip()

    def _shift(self, bound: ast.expr) -> Iterator[Edit]:
        start, end = self._span(bound)
        text = self._source[start:end]
        match bound:
            case ast.Constant(value=int() as number) if not _is_flag(number):
                yield Edit("off_by_one", start, end, str(number + 1))
            case ast.UnaryOp(op=ast.USub()):
                yield Edit("off_by_one", start, end, f"{text} + 1")
            case _:
                yield Edit("off_by_one", start, end, f"({text}) + 1")

    def _swap_branch(self, test: ast.expr) -> Iterator[Edit]:
        """A single comparison, or a `not`, is turned round by its own kind."""
        if isinstance(test, ast.Compare | ast.NamedExpr) or (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            return
        start, end = self._span(test)
        yield Edit("swapped_branch", start, end, f"not ({self._source[start:end]})")

    def _swap_statements(self, body: list[ast.stmt]) -> Iterator[Edit]:
        for first, second in pairwise(body):
            if not _is_order_observable(first, second):
                continue
            (start, first_end), (second_start, end) = self._span(first), self._span(second)
            between = self._source[first_end:second_start]
            swapped = self._source[second_start:end] + between + self._source[start:first_end]
            yield Edit("order", start, end, swapped)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())


def _is_flag(number: int) -> bool:
    return isinstance(number, bool)


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name in SKIPPED_FUNCTIONS
        case ast.Assert() | ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return _is_logging(func)
        case _:
            return False


def _is_logging(function: ast.expr) -> bool:
    """log.info(...), self._log.warning(...), and the parent's constructor, without which nothing works."""
    match function:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
            return True
        case ast.Attribute(value=ast.Name(id=name)) | ast.Attribute(value=ast.Attribute(attr=name)):
            return name.lower() in LOGGERS
        case ast.Name(id=name):
            return name.startswith("log_")
        case _:
            return False


def _is_order_observable(first: ast.stmt, second: ast.stmt) -> bool:
    """Both have effects, one of them more than an assignment to a name or attribute, and the second does not need a name
    that the first binds: that mistake shows itself."""
    plain = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)
    if not (isinstance(first, plain) and isinstance(second, plain)) or _is_skipped(first) or _is_skipped(second):
        return False
    if not (_has_effect(first) and _has_effect(second)):
        return False
    if not (isinstance(first, ast.Expr) or isinstance(second, ast.Expr)):
        return False
    return not (_bound_names(first) & _read_names(second)) and not (_bound_names(second) & _bound_names(first))


def _has_effect(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    stored = any(isinstance(target, ast.Attribute | ast.Subscript | ast.Tuple) for target in targets)
    return stored or any(isinstance(node, ast.Call | ast.Await) for node in ast.walk(statement))


def _bound_names(statement: ast.stmt) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _read_names(statement: ast.stmt) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}
