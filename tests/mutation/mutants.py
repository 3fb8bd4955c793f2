"""Mutants of the package: small faults in its syntax tree, drawn by a fixed seed."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("formats", "optimizers", "converters", "validate", "quantize", "pipelines")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
# What says something to people or to type checkers alone: a fault there is no fault of a result.
_CALLS_OF_WORDS = ("Error", "Refusal", "unsupported", "refuse", "note", "cast", "TypeVar", "Field", "print")


@dataclass(frozen=True)
class Mutant:
    """One change to one file.

    Attributes:
        path: of the file, relative to the root.
        line: where the change is, from 1.
        function: the innermost function of the line, as `functions` names it; "" for a line of the module.
        change: what it is, for people.
        source: the whole file with the change.
    """

    path: str
    line: int
    function: str
    change: str
    source: str


Function = ast.FunctionDef | ast.AsyncFunctionDef


def mutable_files() -> list[str]:
    """Return the files of the rooms, relative to the root."""
    files = (file for room in ROOMS for file in (ROOT / "onnxport" / room).rglob("*.py"))
    return sorted(str(file.relative_to(ROOT)) for file in files)


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Find all functions, outer before inner; a name is "Class.method" or "outer.inner"."""
    for child in ast.iter_child_nodes(node):
        name = (
            f"{prefix}{child.name}"
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else ""
        )
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, child
        yield from functions(child, f"{name}." if name else prefix)


def draw_mutants(count: int, seed: int) -> list[Mutant]:
    """Draw mutants over the lines of all rooms: a room has as many as its share of the places.

    The order is random, too: the first of them are a sample of all.
    """
    places = [
        (path, number) for path in mutable_files() for number in range(len(list(_places(_parsed(path)))))
    ]
    drawn = random.Random(seed).sample(places, count)
    return [_mutant(path, number) for path, number in drawn]


def _parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def _mutant(path: str, number: int) -> Mutant:
    tree = _parsed(path)
    node = list(_places(tree))[number]
    around = [name for name, each in functions(tree) if each.lineno <= node.lineno <= (each.end_lineno or 0)]
    before = ast.unparse(node)
    _change(node)
    change = f"{before} -> {ast.unparse(node)}"
    return Mutant(path, node.lineno, around[-1] if around else "", change, ast.unparse(tree))


def _places(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Find the nodes that `_change` changes, outside of annotations, docstrings and messages."""
    for child in _children(tree):
        if _is_place(child):
            yield child  # type: ignore[misc]
        yield from _places(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
        return
    if isinstance(node, ast.Call) and any(word in ast.unparse(node.func) for word in _CALLS_OF_WORDS):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _is_place(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op]):
            return type(op) in _COMPARISONS
        case ast.BinOp(op=op, left=left, right=right):
            texts = (isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (left, right))
            return type(op) in _ARITHMETIC and not any(texts)
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.IfExp():
            return True
        case ast.Constant(value=value):
            return isinstance(value, bool | int | float)
        case ast.Return(value=value):
            return value is not None and not isinstance(value, ast.Constant)
    return False


def _change(node: ast.expr | ast.stmt) -> None:
    match node:
        case ast.Compare(ops=[op]):
            node.ops = [_COMPARISONS[type(op)]()]
        case ast.BinOp(op=op):
            node.op = _ARITHMETIC[type(op)]()
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), copy.copy(node.operand))
        case ast.IfExp():
            node.body, node.orelse = node.orelse, node.body
        case ast.Constant(value=value):
            node.value = not value if isinstance(value, bool) else value + 1  # type: ignore[operator]
        case ast.Return():
            node.value = ast.Constant(None)
