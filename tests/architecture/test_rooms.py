"""Rooms keep their arrows, and no file imports itself in a circle.

Here an import is an import wherever it stands: at the top, in a function, or for type checkers alone. What only
checkers load still says which imports which.
"""

from __future__ import annotations

from .test_architecture import imports, modules, where

# Floor -> its rooms, from the bottom up; a room may import those further down and itself. Rooms in one tuple are
# neighbours that do not know each other, but for what `NEIGHBOURS` allows. Files next to the rooms come last, and
# import all, but for those that have a place of their own here.
ROOMS: dict[str, list[tuple[str, ...]]] = {
    "dsl": [
        ("diagnostics",),
        ("types",),
        ("signature",),
        ("language",),
        ("frontend",),
        ("contract",),
        ("environment",),
        ("package",),
    ],
    "compiler": [
        ("targets",),
        ("ir",),
        ("interpreter",),
        ("simulation",),
        ("inference", "passes", "lowering", "codegen"),
        ("runtime", "doors"),
        ("reproducer",),
        ("crashes",),
        ("pipeline",),
        ("instances",),
        ("explorer",),
    ],
    "graph": [
        ("arguments",),
        ("driver",),
        ("types",),
        ("quantization",),
        ("ir",),
        ("renumbering",),
        ("staging", "passes"),
        ("findings",),
        ("loading",),
        ("distributed",),
        ("calling",),
        ("profiling", "checking"),
        ("ops", "engine", "weights"),
        ("onnx", "drawing", "c_api"),
        ("tuning", "bench"),
        ("interop", "eager"),
        ("nn",),
        ("array_api",),
        ("public",),
    ],
    "stdlib": [("math",), ("algorithms",), ("kernels",)],
}
RANKS = {f"{floor}.{room}": rank for floor, rows in ROOMS.items() for rank, row in enumerate(rows) for room in row}


def room(name: str) -> str:
    """The room of a module: `compiler.ir`; files that stand next to rooms are rooms of their own."""
    return ".".join(name.split(".")[:2])


def edges() -> dict[str, set[str]]:
    return {name: {t for t, *_ in imports(name) if t != name and t in modules()} for name in modules()}


def test_every_room_has_a_place() -> None:
    folders = {room(name) for name in modules() if name.count(".") >= 2}
    assert not sorted(folders - set(RANKS)), "name them in ROOMS"
    assert not sorted(set(RANKS) - {room(name) for name in modules()}), "there is no such room"


def test_rooms_import_downwards() -> None:
    wrong = []
    for name in modules():
        for target, line, _, _ in imports(name):
            here, there = room(name), room(target)
            if here == there or here.split(".")[0] != there.split(".")[0]:
                continue
            if here in RANKS and RANKS.get(there, len(RANKS)) >= RANKS[here]:
                wrong.append(f"{where(name, line)}: {here} imports {there}")
    assert not wrong, "\n".join(wrong)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972), each sorted."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                result.append(sorted(component))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return result


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}
    assert circles(graph) == [["a", "b", "c"]]


def test_no_circle_of_files() -> None:
    violations = circles(edges())
    assert not violations, "\n".join(" <-> ".join(circle) for circle in violations)
