"""Faults made by rule for `mutants.py --made`: a sign, a factor, a comparison, a line left out, anywhere in a file.

Nobody who writes tests has seen them, so how many are noticed says what the tests are worth. Guards that raise an
error, texts, annotations and what is shown to people are left alone: those are not physics.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

OPERATORS: dict[type, str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "+"}
COMPARISONS: dict[type, str] = {
    ast.Lt: ">", ast.LtE: ">", ast.Gt: "<", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
TWINS = {
    "sin": "cos", "cos": "sin", "min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax",
    "argmax": "argmin", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor", "exp": "expm1",
    "sum": "mean", "mean": "sum", "diff": "cumsum", "zeros": "ones", "ones": "zeros",
}  # fmt: skip
SHOWN = {"print", "warn", "advance", "Progress", "deprecated", "log", "info", "debug", "close"}
"""Calls that are made for people, or only tidy up."""
UNSEEN = {"strict", "asNumpy", "dtype", "order", "copy", "stacklevel"}
"""Keywords that change no number."""


def made_faults(text: str) -> list[tuple[str, str, str]]:
    """Return all faults of a file's text by rule, each (what it does, text of some lines, what stands there instead).

    The lines that are replaced stand in the text exactly once.
    """
    places = _Places(text)
    found = []
    for node, what, new in _changes(ast.parse(text)):
        begin, end = places.span(node)
        if text[begin:end] == new:
            continue
        first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
        last = len(text) if last < 0 else last
        while first > 0 and text.count(text[first:last]) > 1:
            first = text.rfind("\n", 0, first - 1) + 1
        changed = text[first:begin] + new + text[end:last]
        shown = " ".join(text[text.rfind("\n", 0, begin) + 1 : end].split())
        found.append((f"line {node.lineno}: {what}: {shown[-60:]}", text[first:last], changed))
    return found


class _Places:
    """Where nodes stand in a text."""

    def __init__(self, text: str):
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends."""
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield (node, what is done to it, its new text) for all bodies of functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and not function.name.startswith(("__repr", "__str", "_repr")):
            for statement in function.body:
                yield from _statement(statement)


def _statement(statement: ast.stmt) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield the changes of a statement and of those in it."""
    if isinstance(statement, ast.Raise | ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assert):
        return
    if isinstance(statement, ast.Expr) and (isinstance(statement.value, ast.Constant) or _is_shown(statement.value)):
        return
    if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise):
        for other in statement.orelse:
            yield from _statement(other)
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    stored = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    if stored or called or isinstance(statement, ast.AugAssign):
        yield statement, "left out", "pass"
    for name, value in ast.iter_fields(statement):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.stmt):
                yield from _statement(child)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                continue
            elif isinstance(child, ast.expr) and name not in ("annotation", "targets", "target"):
                yield from _expression(child)


def _is_shown(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and (_name_of(node) in SHOWN or _name_of(node).endswith("Error"))


def _name_of(call: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _expression(node: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield the changes of an expression and of those in it."""
    if isinstance(node, ast.JoinedStr | ast.Lambda) or _is_shown(node):
        return
    if isinstance(node, ast.BinOp) and not isinstance(node.left, ast.Constant | ast.JoinedStr | ast.List | ast.Tuple):
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        if isinstance(node.op, ast.Pow):
            yield node, "no power", f"({left})"
        elif type(node.op) in OPERATORS:
            yield node, f"{OPERATORS[type(node.op)]} instead", f"(({left}) {OPERATORS[type(node.op)]} ({right}))"
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        sign = COMPARISONS[type(node.ops[0])]
        yield node, f"{sign} instead", f"({ast.unparse(node.left)} {sign} {ast.unparse(node.comparators[0])})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield node, "no sign" if isinstance(node.op, ast.USub) else "no not", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, f"{word.strip()} instead", "(" + word.join(f"({ast.unparse(one)})" for one in node.values) + ")"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, "the other way", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, "one more", str(node.value + 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield node, "twice", repr(2.0 * node.value if node.value else 1.0)
    elif isinstance(node, ast.Call) and _name_of(node) in TWINS:
        twin = TWINS[_name_of(node)]
        owner = f"({ast.unparse(node.func.value)})." if isinstance(node.func, ast.Attribute) else ""
        yield node.func, twin, owner + twin
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _expression(child)
        elif isinstance(child, ast.keyword) and child.arg not in UNSEEN:
            yield from _expression(child.value)
        elif isinstance(child, ast.comprehension):
            yield from _expression(child.iter)
            for test in child.ifs:
                yield from _expression(test)
