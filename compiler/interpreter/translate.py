"""Typed program -> Python functions whose frames look like the author's: same names, files and lines.

    %v3 = add %v1, %v2   # norm.py:12        ->      %3 = %f0(%1, %2)          at line 12 of norm.py
    for %0, %n, 1 (%i) { … }                 ->      for %i in %span(%0, %n, %1): …

Each function of the author's that was inlined becomes a Python function again, so that a debugger, a profiler or a
traceback shows the kernel's own frames. Numbers are held in variables whose names no author can write. What an
operation computes is a call of the function that its family or its row gave for it (see `machine` and `rows`).
"""

from __future__ import annotations

import ast
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, TypeVar

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import Place
from ...dsl.diagnostics.syntax_trees import syntax_tree
from ..ir.opcodes import COMPLEX, CONST, ENQUEUE, IRREGULAR, LAUNCH, OPCODES
from ..ir.program import Location, Op, ProgramFunction, Region, Value, captures, walk
from ..ir.rules import Form
from . import async_copies, atomics, grids, group_matrices, matrices, memory, native, reports, scalars, vectors, warps  # noqa: F401  # each registers its own
from .debugger import KERNEL, debugger, tensor
from .grids import run_grid
from .machine import EVALUATORS, Machine, number
from .rows import evaluate_row

Node = TypeVar("Node", bound=ast.stmt)

MAX_NESTING = 12  # of loops and branches in one Python function; CPython allows 20


@dataclass(frozen=True, eq=False)
class Activation:
    """A running function: its caller, its file and its name. `_Activations` makes one for each."""

    caller: Location | None
    file: str
    name: str


Run = tuple[Activation | None, list[Op]]  # operations that stand in one function


class _Activations:
    """The functions that run where an operation stands. Equal locations are many: they are compared once."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}  # of locations by their ids; equal ones have one number
        self.equal: dict[tuple[int, Place, str], int] = {}
        self.made: dict[tuple[int, str, str], Activation] = {}
        self.paths: dict[int, tuple[Activation, ...]] = {}  # by the ids of locations

    def number(self, location: Location | None) -> int:
        if location is None:
            return -1
        known = self.numbers.get(id(location))
        if known is None:
            key = (self.number(location.caller), location.place, location.function)
            known = self.numbers[id(location)] = self.equal.setdefault(key, len(self.equal))
        return known

    def path(self, location: Location | None) -> tuple[Activation, ...]:
        """Outermost first."""
        if location is None:
            return ()
        known = self.paths.get(id(location))
        if known is None:
            caller, file, name = location.caller, location.place.file, location.function
            key = (self.number(caller), file, name)
            if key not in self.made:
                self.made[key] = Activation(caller, file, name)
            known = self.paths[id(location)] = (*self.path(caller), self.made[key])
        return known


def translate(function: ProgramFunction, machine: Machine) -> Callable[..., None]:
    """The function as one of Python's; it takes pointers and sizes as the typed one does."""
    module = _Module(machine)
    for op in walk(function.body):
        module.uses.update(id(v) for v in op.operands)
    ops = function.body.ops
    location = next((op.location for op in ops if op.location.function), ops[0].location)
    while location.caller is not None:
        location = location.caller
    name = location.function or function.name
    return module.function(name, location, function.params, ops, ())


class _Module:
    """What the functions of one typed function share: names, constants, evaluators."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.activations = _Activations()
        self.names: dict[int, str] = {}
        self.uses: Counter[int] = Counter()  # how often a value is an operand
        self.globals: dict[str, Any] = {"__name__": KERNEL, "%span": _span, "%parts": _parts}
        self.globals |= {"%machine": machine, "%grid": run_grid, "%tensor": tensor, "%debugger": debugger}

    def name(self, value: Value) -> str:
        return self.names.setdefault(id(value), f"%{len(self.names)}")

    def constant(self, thing: object) -> str:
        """A global name for an object."""
        name = f"%g{len(self.globals)}"
        self.globals[name] = thing
        return name

    def read(self, value: Value) -> ast.expr:
        """A value where it is used; constants need not have been made there."""
        if value.const is not None and id(value) not in self.names:
            self.names[id(value)] = self.constant(number(value.const, value.simd))
        return ast.Name(self.name(value), ast.Load())

    def function(
        self, name: str, location: Location, params: Sequence[Value], ops: Sequence[Op], results: Sequence[Value]
    ) -> FunctionType:
        """Operations as a Python function at the place of `location`."""
        writer = _Writer(self, location)
        body = writer.block(ops, 0)
        if results:
            body.append(writer.at(ast.Return(writer.tuple(results))))
        if not body:
            body.append(writer.at(ast.Pass()))
        if _waits(ops):  # a generator, even where what waits is in a function that it calls
            body.insert(0, writer.at(ast.If(ast.Constant(False), [writer.at(ast.Expr(ast.Yield()))], [])))
        made = syntax_tree("def function(): pass").body[0]  # with the fields that this version of Python has
        assert isinstance(made, ast.FunctionDef)
        made.name, made.body = name, body
        made.args.args = [ast.arg(self.name(p)) for p in params]
        writer.line = location.place.line
        writer.at(made)
        tree = ast.fix_missing_locations(ast.Module([made], []))
        scope: dict[str, Any] = {}
        exec(compile(tree, location.place.file, "exec"), self.globals, scope)
        result = scope[name]
        assert isinstance(result, FunctionType)
        return result


class _Writer:
    """Writes the body of one Python function."""

    def __init__(self, module: _Module, location: Location) -> None:
        self.module = module
        self.active = set(module.activations.path(location))
        self.file = location.place.file
        self.line = location.place.line

    # pieces

    def at(self, node: Node) -> Node:
        """A node at the current line."""
        node.lineno = node.end_lineno = self.line
        node.col_offset, node.end_col_offset = 0, 0
        return node

    def move(self, location: Location) -> None:
        """What is written from now on stands at a place, if that is in this file."""
        if location.place.file == self.file:
            self.line = location.place.line

    def tuple(self, values: Sequence[Value]) -> ast.expr:
        if len(values) == 1:
            return self.module.read(values[0])
        return ast.Tuple([self.module.read(v) for v in values], ast.Load())

    def target(self, values: Sequence[Value]) -> ast.expr:
        names: list[ast.expr] = [ast.Name(self.module.name(v), ast.Store()) for v in values]
        return names[0] if len(names) == 1 else ast.Tuple(names, ast.Store())

    def call(self, function: object, arguments: Sequence[ast.expr]) -> ast.expr:
        callee = function if isinstance(function, str) else self.module.constant(function)
        return ast.Call(ast.Name(callee, ast.Load()), list(arguments), [])

    def assign(self, results: Sequence[Value], value: ast.expr) -> ast.stmt:
        made: ast.stmt = ast.Assign([self.target(results)], value) if results else ast.Expr(value)
        return self.at(made)

    def copy(self, to: Sequence[Value], values: Sequence[Value]) -> list[ast.stmt]:
        """`to` become `values`, all at once."""
        return [self.assign(to, self.tuple(values))] if to else []

    # blocks

    def block(self, ops: Sequence[Op], depth: int) -> list[ast.stmt]:
        """Statements for operations; those of functions that were called here become calls again."""
        out: list[ast.stmt] = []
        for callee, run in self.runs([op for op in ops if not op.opcode.ends]):
            if callee is not None:
                out.append(self.called(callee, run))
            elif depth >= MAX_NESTING:
                out.append(self.lifted(run))
            else:
                for op in run:
                    self.move(op.location)
                    out += self.operation(op, depth)
        return out

    def runs(self, ops: Sequence[Op]) -> Iterator[Run]:
        """Operations in groups: None for those of this function, else the function that was called."""
        active = self.active
        callee: Activation | None = None
        run: list[Op] = []
        for op in ops:
            if _is_constant(op):
                run.append(op)  # anywhere will do
                continue
            path = self.module.activations.path(op.location)
            new = None if path[-1] in active else next(frame for frame in path if frame not in active)
            if callee is not None and callee in path:
                new = callee
            if new != callee and run:
                yield callee, run
                run = []
            callee = new
            run.append(op)
        if run:
            yield callee, run

    def called(self, callee: Activation, ops: Sequence[Op]) -> ast.stmt:
        if callee.caller is not None:
            self.move(callee.caller)
        path = self.module.activations.path
        first = next(here for op in ops for here in _chain(op.location) if path(here)[-1] is callee)
        return self.apart(callee.name or "kernel", first, ops)

    def lifted(self, ops: Sequence[Op]) -> ast.stmt:
        """Operations that nest too deeply, in a Python function of their own."""
        return self.apart("<nested>", ops[0].location, ops)

    def apart(self, name: str, location: Location, ops: Sequence[Op]) -> ast.stmt:
        region = Region([], list(ops))
        inside = Counter(id(v) for op in walk(region) for v in op.operands)
        results = [v for op in ops for v in op.results if self.module.uses[id(v)] > inside[id(v)] and v.const is None]
        params = captures(region)
        function = self.module.function(name, location, params, ops, results)
        call = self.call(function, [self.module.read(v) for v in params])
        return self.assign(results, ast.YieldFrom(call) if _waits(ops) else call)

    def operation(self, op: Op, depth: int) -> list[ast.stmt]:
        if op.name in STRUCTURED:
            return STRUCTURED[op.name](self, op, depth + 1)
        if _is_constant(op):
            return []  # made where it is used
        if op.opcode.row is not None:
            function: Any = evaluate_row(op.name, op.operands[0].simd.dtype)
        else:
            function = EVALUATORS[op.name](op, self.module.machine)
        value = self.call(function, [self.module.read(v) for v in op.operands])
        return [self.assign(op.results, ast.Yield(value) if op.opcode.waits else value)]


def _is_constant(op: Op) -> bool:
    """Whether a value is made where it is used; a complex number may be made of two constants."""
    return op.opcode in (CONST, COMPLEX) and op.results[0].const is not None


def _chain(location: Location) -> Iterator[Location]:
    here: Location | None = location
    while here is not None:
        yield here
        here = here.caller


def _waits(ops: Sequence[Op]) -> bool:
    """Whether a thread waits for others in one of the operations; a launch waits for its threads itself."""
    if any(op.opcode.waits for op in ops):
        return True
    return any(_waits(region.ops) for op in ops if op.opcode is not LAUNCH for region in op.regions)


# *** operations with regions ***


def _if(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    arms = []
    line = w.line
    for region in op.regions:
        w.line = line
        arms.append([*w.block(region.ops, depth), *w.copy(op.results, region.ops[-1].operands)])
    w.line = line
    then, other = arms
    return [w.at(ast.If(w.module.read(op.operands[0]), then or [w.at(ast.Pass())], other))]


def _for(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    low, high, step, *initial = op.operands
    region = op.regions[0]
    index, *carried = region.args
    start = w.copy(carried, initial)
    span = w.call("%span", [w.module.read(v) for v in (low, high, step)])
    line = w.line
    body = [*w.block(region.ops, depth), *w.copy(carried, region.ops[-1].operands)]
    w.line = line
    loop = w.at(ast.For(w.target([index]), span, body or [w.at(ast.Pass())], []))
    return [*start, loop, *w.copy(op.results, carried)]


def _while(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    test, body = op.regions
    start = w.copy(test.args, op.operands)
    line = w.line
    condition, *passed = test.ops[-1].operands
    inner = w.block(test.ops, depth)
    w.line = line
    leave = [*w.copy(op.results, passed), w.at(ast.Break())]
    inner.append(w.at(ast.If(ast.UnaryOp(ast.Not(), w.module.read(condition)), leave, [])))
    inner += w.copy(body.args, passed)
    inner += [*w.block(body.ops, depth), *w.copy(test.args, body.ops[-1].operands)]
    w.line = line
    return [*start, w.at(ast.While(ast.Constant(True), inner, []))]


def _parallel(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    region = op.regions[0]
    parts = w.call("%parts", [ast.Name("%machine", ast.Load()), *(w.module.read(v) for v in op.operands)])
    line = w.line
    body = w.block(region.ops, depth)
    w.line = line
    return [w.at(ast.For(w.target(region.args), parts, body or [w.at(ast.Pass())], []))]


def _launch(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    region = op.regions[0]
    params = captures(region)
    name = next((inner.location.function for inner in region.ops if inner.location.function), "kernel")
    first = next((inner.location for inner in region.ops if inner.location.function == name), op.location)
    function = w.module.function(name, first, params, region.ops, ())
    cluster = w.module.constant(op.attrs.get("cluster", (1, 1, 1)))
    arguments = [ast.Name(cluster, ast.Load()), *(w.module.read(v) for v in (*op.operands, *params))]
    machine = ast.Name("%machine", ast.Load())
    return [w.at(ast.Expr(w.call("%grid", [machine, ast.Name(w.module.constant(function), ast.Load()), *arguments])))]


def _note(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    out: list[ast.stmt] = [w.at(ast.Pass())]  # a line to stop at
    for name, form in op.attrs["names"]:
        out.append(w.at(ast.Assign([ast.Name(name, ast.Store())], _formed(w, op, form))))
    return out


def _formed(w: _Writer, op: Op, form: Form) -> ast.expr:
    """An expression for what a variable holds."""
    match form:
        case ("value", number):
            return w.module.read(op.operands[number])
        case ("tuple", parts):
            return ast.Tuple([_formed(w, op, part) for part in parts], ast.Load())
        case ("struct", name, fields, parts):
            make = w.module.constant(namedtuple(name, fields))
            return ast.Call(ast.Name(make, ast.Load()), [_formed(w, op, part) for part in parts], [])
        case ("tensor", pointer, dims):
            return w.call("%tensor", [w.module.read(op.operands[k]) for k in (pointer, *dims)])
    return ast.Name(w.module.constant(form[1]), ast.Load())


def _breakpoint(w: _Writer, op: Op, depth: int) -> list[ast.stmt]:
    return [w.at(ast.Expr(ast.Call(w.call("%debugger", []), [], [])))]


STRUCTURED: dict[str, Callable[[_Writer, Op, int], list[ast.stmt]]] = {
    "if": _if,
    "for": _for,
    "while": _while,
    "parallel": _parallel,
    "launch": _launch,
    "note": _note,
    "breakpoint": _breakpoint,
}

ENDS = {opcode.name for opcode in OPCODES.values() if opcode.ends}  # written by the operations around them

_unmatched = {*EVALUATORS, *STRUCTURED, *ENDS, ENQUEUE.name} ^ set(IRREGULAR)
assert not _unmatched, f"opcodes that {__package__} does not compute, or computes in vain: {_unmatched}"


# *** what the functions call ***


def _span(low: Any, high: Any, step: Any) -> Iterator[Any]:
    """The indices of a `for`, as Ints."""
    make = type(low)
    return (make(k) for k in range(int(low), int(high), int(step)))


PARTS = 4  # at most, of a parallel region


def _parts(machine: Machine, total: Any, grain: Any) -> Iterator[tuple[Any, Any]]:
    """Ranges that cover [0, total), as a pool may take them: cut by the grain, in any order."""
    make = type(total)
    step = max(int(grain), 1, -(-int(total) // PARTS))
    lows = list(range(0, int(total), step))
    if machine.random is not None:
        machine.random.shuffle(lows)
    return ((make(low), make(min(low + step, int(total)))) for low in lows)
