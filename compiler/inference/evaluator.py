"""Evaluates statements and expressions of a kernel: syntax tree -> typed program.

One `Evaluator` works on one function of an entry. Compile-time values are evaluated by Python's own rules; run-time
values become operations of the typed program. What a node, a call or a name of the language does is registered in the
tables below by the modules that know it (see `handlers`); the evaluator looks it up, and imports none of them.

Independent mistakes are collected: a statement that fails poisons the variables that it would have assigned, and using
these is not a new mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NoReturn

from ...dsl.contract.checks import SAFE, Checks
from ...dsl.diagnostics.errors import CompileError, EinkornError, each_of, joined, unlike
from ...dsl.diagnostics.places import Label, Place, is_shipped
from ...dsl.frontend import syntax
from ...dsl.language.imports import with_imports
from ...dsl.types.dtype import DType, SIMDType
from ..ir.builder import Builder
from ..ir.program import Site, Type, Value
from ..ir.ranges import Ranges
from ..ir.scoped import Scoped
from ..targets.base import Target
from .budget import AT_A_STEP, MAX_ITEMS, MAX_STEPS, MISTAKE, READS, size_of
from .call_trace import trace_calls
from .recovery import Cascade, Undecided, is_runtime_expression, poison
from .values.compile_time import Frame, Poisoned, StructValue, is_poisoned
from .values.flow import NEVER, NEXT, Abandoned, Flow, NeverReturns, Rest, ended, gives_value, with_rest
from .values.launched import Launched

MAX_ERRORS = 100
MAX_UNROLL = 4096

Handler = Callable[["Point", Any], Any]

EXPRESSIONS: dict[type[syntax.SyntaxNode], Handler] = {}
STATEMENTS: dict[type[syntax.SyntaxNode], Handler] = {}
RULES: dict[str, Callable[..., object]] = {}
NAMED_VALUES: dict[str, Callable[..., Any]] = {}
CALLABLES: dict[type, Callable[..., object]] = {}  # by the class of the callee: `f(call, callee, args, keywords)`


def _registered(table: dict[Any, Any], key: type[syntax.SyntaxNode] | type | str) -> Callable[[Any], Any]:
    def add(handler: Any) -> Any:
        assert key not in table, key
        table[key] = handler
        return handler

    return add


def expression(kind: type[syntax.SyntaxNode]) -> Callable[[Handler], Handler]:
    """Registers the handler of a kind of expression."""
    return _registered(EXPRESSIONS, kind)


def statement(kind: type[syntax.SyntaxNode]) -> Callable[[Handler], Handler]:
    """Registers the handler of a kind of statement."""
    return _registered(STATEMENTS, kind)


def callable_(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers what a call of a value of this class does: `f(call, callee, args, keywords)`."""
    return _registered(CALLABLES, kind)


def named_value(name: str) -> Callable[[Callable[[Point], Any]], Callable[[Point], Any]]:
    """Registers the value of a name of the language that stands for one, such as `gpu.thread_idx.x`."""
    return _registered(NAMED_VALUES, name)


def rule(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers what a stub of the language does: `f(call, **bound arguments)`."""
    return _registered(RULES, name)


NO_NODES: Mapping[str, syntax.SyntaxNode] = {}
_WEIGHED = (tuple, str, StructValue)  # a union would be made anew for each expression


class Point:
    """Where the evaluation is: at a node, in a frame; of a call, with the nodes of its arguments by name.

    Everything that evaluates, emits or complains takes the point at which it does so.
    """

    __slots__ = ("evaluator", "frame", "node", "nodes")

    def __init__(self, evaluator: Evaluator, node: syntax.SyntaxNode, frame: Frame) -> None:
        self.evaluator = evaluator
        self.node = node
        self.frame = frame
        self.nodes: Mapping[str, syntax.SyntaxNode] = NO_NODES  # replaced, never changed

    @property
    def builder(self) -> Builder:
        return self.evaluator.builder

    def on(self, node: syntax.SyntaxNode) -> Point:
        """Another node of the same frame."""
        return Point(self.evaluator, node, self.frame)

    def within(self, frame: Frame) -> Point:
        """The same node in another frame."""
        return Point(self.evaluator, self.node, frame)

    def argument(self, name: str) -> Point:
        """The argument of this name; the call itself where it is not written out."""
        return self.on(self.nodes.get(name, self.node))

    def index_part(self, axis: int | None, count: int) -> syntax.SyntaxNode:
        """Where the part of an index of `count` parts stands that belongs to an axis; the whole index where unknown."""
        node = self.nodes.get("index", self.node)
        if axis is None or not isinstance(node, syntax.Tuple) or len(node.items) != count:
            return node
        return node if any(isinstance(item, syntax.Starred) for item in node.items) else node.items[axis]

    def error(self, code: str, message: str, argument: str | None = None, /, **details: Any) -> CompileError:
        """A mistake of the author's here, or at an argument of the call."""
        node = self.nodes.get(argument or "", self.node)
        return self.evaluator.error(code, message, node, self.frame, **details)

    def step(self, steps: int = 1) -> None:
        """Counts work that is done here."""
        self.evaluator.step(self.node, self.frame, steps)

    def locate(self) -> None:
        """Operations emitted from now on belong to this node."""
        self.evaluator.builder.locate(self.frame.location, self.node)

    def expr(self, node: syntax.Expr) -> Any:
        """The value of an expression."""
        value = self.evaluator._value(node, self.frame)
        if isinstance(value, Poisoned):
            raise Cascade
        return value

    def expr_or_poison(self, node: syntax.Expr) -> Any:
        """The value of an expression; with a mistake in it, which is noted, it is a poisoned one."""
        evaluator = self.evaluator
        try:
            return evaluator._value(node, self.frame)
        except (Cascade, CompileError) as error:
            return evaluator._poisoned_by(error, node, self.frame)

    def values(self, nodes: Iterable[syntax.Expr]) -> list[Any]:
        """The values of several expressions; mistakes in each of them are noted before the statement is given up."""
        return self.evaluator.values(nodes, self.frame)

    def block(self, statements: tuple[syntax.Stmt, ...], end: str | None = None) -> Flow:
        """Runs statements until one leaves the block (see `Evaluator.block`)."""
        return self.evaluator.block(statements, self.frame, end)

    def recover(self, work: Callable[[], Any]) -> Any:
        """What `work` gives for this node; a poisoned value on an error, which is recorded."""
        return self.evaluator.recover(work, self.node, self.frame)


class Evaluator(Scoped):
    """Evaluates the functions of one kernel instance (and of those fused with it) into one region."""

    def __init__(self, target: Target, sites: list[Site], checks: Checks = SAFE) -> None:
        self.target = target
        self.sites = sites
        self.checks = checks
        self.builder = Builder()
        self.ranges = Ranges(self.builder)
        self.errors: list[EinkornError] = []
        self.loop_types: dict[object, SIMDType] = {}  # of loop variables, as they turned out
        self.sums: dict[object, DType] = {}  # of those that are accumulators, what they add up; see `accumulators`
        self.terms: dict[int, Any] = {}  # what is known of terms of sums, by serial; see `exact_terms`
        self.widened: list[Value] = []  # numbers that were computed anew in a wider dtype
        self.implicit_casts: set[int] = set()  # what they gave, by serial
        self.compared: list[tuple[Point, Value]] = []  # narrow integers that the author compares, and where
        self.wider_results: dict[tuple[int, DType], Value] = {}  # results of `if` operations, computed in another dtype
        self.adopted_types: dict[object, SIMDType] = {}  # the first of each loop variable of open type
        self.instance = ""  # "op 'x' [T=float32, target=sm_90]", for notes
        self.op = ""
        self.level = "host"  # "host", "parallel" (a task on the CPU) or "device" (a GPU thread)
        self.owner: Any = None  # the index of the call of a parallel body; see `inference.ownership`
        self.batch: Any = None  # the member of a batch that is computed alone; see `inference.batches`
        self.watch: Any = None  # the loop's body that is being built; see `inference.language.rare_cases`
        self.rare: set[int] = set()  # conditions that hold for few elements of a GPU's thread, by serial
        self.gpu_ids: dict[str, Value] | None = None  # thread and block indices when a grid runs on the CPU
        self.launched: Launched | None = None  # the launch whose kernel this is
        self.debugging = False  # whether a debugger is passed what variables hold; see `inference.debug_values`
        self.folding = False  # whether a call is being computed at compile time; see `folding`
        self.pruned = False  # whether sizes that are known left out what other sizes would reach
        self.trial = False  # whether only the types are wanted; see `inference.syntax.loop_variables`
        self.own_names: dict[
            int, tuple[syntax.SyntaxNode, frozenset[str]]
        ] = {}  # of functions; see `inference.scoping`
        self.library_types: dict[object, Type] = {}  # of calls, for trials; see `calls.library`

    # errors

    def error(
        self,
        code: str,
        message: str,
        node: syntax.SyntaxNode,
        frame: Frame,
        *,
        label: str = "",
        labels: Iterable[Label] = (),
        notes: Iterable[str | tuple[str, Place]] = (),
        **details: Any,
    ) -> CompileError:
        """A mistake of the author's at `node`, with the calls that led here.

        What goes wrong inside a function that ships with Einkorn is shown where the author calls it.
        """
        self.builder.steps += MISTAKE
        place, calls = trace_calls(frame, node)
        if place != frame.place(node):
            label, labels = "", ()
            details.pop("hint", None)
        details["hint"] = with_imports(details.get("hint"), place)
        all_notes = [note if isinstance(note, str) else " ".join(map(str, note)) for note in notes]
        for at, steps in groupby(calls, key=lambda call: call[1]):
            same = [text for text, _ in steps]
            all_notes.append(f"{same[0]} {at}" + (f", {len(same)} times" if len(same) > 1 else ""))
        if self.instance:
            all_notes.append(f"compiled for {self.instance}")
        return CompileError(
            message,
            code=code,
            place=place,
            labels=(Label(place, label), *labels),
            notes=all_notes,
            op=self.op or None,
            chain=[at for _, at in calls],
            **details,
        )

    def collect(self, error: EinkornError, frame: Frame | None = None) -> None:
        """Keeps a mistake, to be raised with all others; a repeated one is kept once.

        A mistake within a function that ships with Einkorn is one of its call: it is raised on to the author's place.
        """
        if self.folding or (frame is not None and frame.caller is not None and is_shipped(frame.file)):
            raise error
        self.errors += unlike(each_of(error), self.errors)
        if len(self.errors) >= MAX_ERRORS:
            raise Abandoned

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Drops the sites and the mistakes of what is evaluated within."""
        sites, errors = len(self.sites), len(self.errors)
        try:
            yield
        finally:
            del self.sites[sites:]
            del self.errors[errors:]

    def raise_errors(self) -> None:
        """Raises what was collected, if anything."""
        if self.errors:
            raise joined(self.errors, more=len(self.errors) >= MAX_ERRORS)

    # expressions and statements

    def expr(self, node: syntax.Expr, frame: Frame) -> Any:
        """The value of an expression."""
        value = self._value(node, frame)
        if isinstance(value, Poisoned):
            raise Cascade
        return value

    def _value(self, node: syntax.Expr, frame: Frame) -> Any:
        builder = self.builder
        builder.steps += 1  # as `step`
        if builder.steps > MAX_STEPS:
            self._exceeded(node, frame)
        value = EXPRESSIONS[type(node)](Point(self, node, frame), node)
        if isinstance(value, _WEIGHED):
            self._weigh(value, node, frame)
        return value

    def _weigh(self, value: object, node: syntax.Expr, frame: Frame) -> None:
        """Counts what a new tuple, struct or string took to make.

        Raises:
            CompileError: EK0206, it is too large.
        """
        if isinstance(node, READS):
            return
        count = size_of(value)
        if count > MAX_ITEMS:
            raise self.error("EK0206", "this compile-time value grows too large", node, frame)
        self.builder.steps += count // AT_A_STEP

    def step(self, node: syntax.SyntaxNode, frame: Frame, steps: int = 1) -> None:
        """Counts a statement, an expression or other work; ends the evaluation of what takes too much."""
        self.builder.steps += steps
        if self.builder.steps > MAX_STEPS:
            self._exceeded(node, frame)

    def _exceeded(self, node: syntax.SyntaxNode, frame: Frame) -> NoReturn:
        """Ends an evaluation that takes more steps than one may; next to other mistakes, these are what is reported."""
        if self.folding:
            text = f"this takes more than {MAX_STEPS} steps at compile time"
            hint = "pass a value of the running program, Int(n) for example"
            error = self.error("EK0124", text, node, frame, hint=hint)
            error.endless = True
            raise error
        if not self.errors:
            text = f"this program takes more than {MAX_STEPS} steps to write out"
            hint = "unroll less, with `range` for the outer loops, and call fewer functions that call functions"
            self.errors.append(self.error("EK0216", text, node, frame, hint=hint))
        self.errors[-1].endless = True
        raise Abandoned

    def expr_or_poison(self, node: syntax.Expr, frame: Frame) -> Any:
        """The value of an expression; with a mistake in it, which is noted, it is a poisoned one."""
        try:
            return self._value(node, frame)
        except (Cascade, CompileError) as error:
            return self._poisoned_by(error, node, frame)

    def recover(self, work: Callable[[], Any], node: syntax.SyntaxNode, frame: Frame) -> Any:
        """What `work` gives for an expression; a poisoned value on an error, which is recorded."""
        try:
            return work()
        except (Cascade, CompileError) as error:
            return self._poisoned_by(error, node, frame)

    def _poisoned_by(self, error: Cascade | CompileError, node: syntax.SyntaxNode, frame: Frame) -> Poisoned:
        if isinstance(error, CompileError):
            self.collect(error, frame)
        elif not self.errors or self.folding:
            raise error
        self.builder.steps += MISTAKE
        return Poisoned(is_runtime_expression(node, frame))

    def values(self, nodes: Iterable[syntax.Expr], frame: Frame) -> list[Any]:
        """The values of several expressions; mistakes in each of them are noted before the statement is given up."""
        results = [self.expr_or_poison(node, frame) for node in nodes]
        if is_poisoned(results):
            raise Cascade
        return results

    def locate(self, node: syntax.SyntaxNode, frame: Frame) -> None:
        """Operations emitted from now on belong to `node`."""
        self.builder.locate(frame.location, node)

    def block(self, statements: tuple[syntax.Stmt, ...], frame: Frame, end: str | None = None) -> Flow:
        """Runs statements until one leaves the block.

        `end` says what comes after the block: the end of a `loop`'s body, of a `function`, or something else ("");
        None when it stands at the end of a statement, and shares its end.
        """
        after = frame.end if end is None else end
        for number, stmt in enumerate(statements, 1):
            rest = statements[number:]
            self.step(stmt, frame)
            self.locate(stmt, frame)
            whole = with_rest(stmt, rest)
            last = not rest or whole is not None
            frame.end = after if last else ""
            try:
                flow = self.guarded(whole or stmt, frame)
            except Undecided:
                flow = self.block(rest, poison(frame, stmt), after)
                return ended("return", Poisoned()) if gives_value((stmt,)) else flow
            if last or not flow.goes_on():
                return flow
            if flow.kinds != NEXT.kinds:
                frame.end = after
                return self.guarded(Rest(flow, rest, span=stmt.span), frame)
        return NEXT

    def guarded(self, stmt: syntax.Stmt, frame: Frame) -> Flow:
        """One statement; a mistake in it is noted and the next one is tried."""
        try:
            flow = STATEMENTS[type(stmt)](Point(self, stmt, frame), stmt)
            return flow if isinstance(flow, Flow) else NEXT
        except NeverReturns:
            return NEVER
        except Cascade:
            if not self.errors or self.folding:
                raise
        except CompileError as error:
            self.collect(error, frame)
        except RecursionError:
            if self.folding:
                raise
            self.collect(self.error("EK0112", "this statement is nested too deeply", stmt, frame), frame)
        poison(frame, *(stmt.statements if isinstance(stmt, Rest) else (stmt,)))
        return ended("return", Poisoned()) if gives_value((stmt,)) else NEXT
