"""Syntax tree -> typed program: evaluates a kernel at compile time and emits what remains for run time.

One `Inferer` works on one function of an entry. Compile-time values are evaluated by Python's own rules; run-time
values become operations of the typed program; every function of the author's is inlined where it is called.
Expressions, statements and the names of the language each have a small function in a table (`expressions`,
`statements`, `rules`).

Independent mistakes are collected: a statement that fails poisons the variables that it would have assigned, and using
these is no new mistake.

Input: a kernel's syntax and bound arguments. Output: operations in the builder's region, sites, errors. Non-goals:
which kernels fuse, and how a target spells anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..dsl import syntax
from ..dsl.errors import CompileError, CompileErrors, did_you_mean
from ..dsl.portable import GlobalEntry, is_shipped
from ..dsl.source import Label, Place
from ..dsl.types import SIMDType
from .coerce import bind_stub, call_row, coerce
from .flow import NEXT, Flow, TooMany, argument_node, gives_value, leaves
from .library_calls import call_library
from .program import Builder, Site, Value
from .targets.base import Target
from .values import Bound, Cascade, Closure, Frame, LibraryRef, Marker, Poisoned, StubRef, describe, plural

MAX_DEPTH = 64
MAX_ERRORS = 20
MAX_UNROLL = 4096
MAX_STATEMENTS = 50_000

Handler = Callable[["Inferer", Any, Frame], Any]

EXPRESSIONS: dict[type[syntax.Node], Handler] = {}
STATEMENTS: dict[type[syntax.Node], Handler] = {}
RULES: dict[str, Callable[..., Any]] = {}
WRITTEN_OUT: dict[type[syntax.Node], Handler] = {}  # statements that may stand for several: loops that return


def expression(kind: type[syntax.Node]) -> Callable[[Handler], Handler]:
    """Registers the handler of a kind of expression."""

    def add(handler: Handler) -> Handler:
        assert kind not in EXPRESSIONS, kind
        EXPRESSIONS[kind] = handler
        return handler

    return add


def statement(kind: type[syntax.Node]) -> Callable[[Handler], Handler]:
    """Registers the handler of a kind of statement."""

    def add(handler: Handler) -> Handler:
        assert kind not in STATEMENTS, kind
        STATEMENTS[kind] = handler
        return handler

    return add


def rule(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers what a stub of the language does: `f(call, **bound arguments)`."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in RULES, name
        RULES[name] = function
        return function

    return add


class Call:
    """The call of a stub: where it stands, and where its arguments stand."""

    def __init__(self, inferer: Inferer, node: syntax.Expr, frame: Frame) -> None:
        self.inferer = inferer
        self.node = node
        self.frame = frame
        self.nodes: dict[str, syntax.Expr] = {}

    @property
    def builder(self) -> Builder:
        return self.inferer.builder

    def error(self, code: str, message: str, argument: str | None = None, **details: Any) -> CompileError:
        """An error at an argument of the call, or at the call."""
        node = self.nodes.get(argument or "", self.node)
        return self.inferer.error(code, message, node, self.frame, **details)


class Inferer:
    """Evaluates the functions of one kernel instance (and of those fused with it) into one region."""

    def __init__(self, target: Target, sites: list[Site]) -> None:
        self.target = target
        self.sites = sites
        self.builder = Builder()
        self.errors: list[CompileError] = []
        self.hints: dict[Any, SIMDType] = {}  # the types that loop variables turned out to have
        self.met: dict[Any, SIMDType] = {}  # the first type that each loop variable of open type met
        self.instance = ""  # "op 'x' [T=float32, target=sm_90]", for notes
        self.op = ""
        self.level = "host"  # "host", "parallel" (a task on the CPU) or "device" (a GPU thread)
        self.gpu_ids: dict[str, Value] | None = None  # thread and block indices when a grid runs on the CPU
        self.statements = 0  # evaluated so far, against endless unrolling

    # errors

    def error(
        self,
        code: str,
        message: str,
        node: syntax.Node,
        frame: Frame,
        *,
        label: str = "",
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        **details: Any,
    ) -> CompileError:
        """A mistake of the author's at `node`, with the calls that led here.

        What goes wrong inside a function that ships with Einkorn is shown where the author calls it.
        """
        chain = [frame.place(node), *(frame.caller.chain() if frame.caller is not None else [])]
        own = [place for place in chain if not is_shipped(place.file)] or chain
        place = own[0]
        if place is not chain[0]:
            label, labels = "", ()
            details.pop("hint", None)
        all_notes = list(notes)
        all_notes += [f"called from {p}" for p in own[1:]]
        if self.instance:
            all_notes.append(f"compiled for {self.instance}")
        return CompileError(
            message,
            code=code,
            place=place,
            labels=(Label(place, label), *labels),
            notes=all_notes,
            op=self.op or None,
            **details,
        )

    def raise_errors(self) -> None:
        """Raises what was collected, if anything."""
        unique: dict[tuple[Place | None, str], CompileError] = {}
        for error in self.errors:
            unique.setdefault((error.place, error.message), error)
        found = list(unique.values())
        if len(found) == 1:
            raise found[0]
        if found:
            raise CompileErrors(found)

    # expressions and statements

    def expr(self, node: syntax.Expr, frame: Frame) -> Any:
        """The value of an expression."""
        value = EXPRESSIONS[type(node)](self, node, frame)
        if isinstance(value, Poisoned):
            raise Cascade
        return value

    def locate(self, node: syntax.Node, frame: Frame) -> None:
        """Operations emitted from now on belong to `node`."""
        self.builder.location = frame.location(node)

    def block(self, statements: tuple[syntax.Stmt, ...], frame: Frame) -> Flow:
        """Runs statements until one leaves the block."""
        for number, stmt in enumerate(statements):
            self.count(stmt, frame)
            self.locate(stmt, frame)
            written_out = self.written_out(stmt, frame)
            if written_out is not None:
                return self.block((*written_out, *statements[number + 1 :]), frame)
            if isinstance(stmt, syntax.If) and leaves(stmt):
                # What follows an `if` that may leave belongs into each of its arms.
                return self.guarded(stmt, statements[number + 1 :], frame)
            flow = self.guarded(stmt, (), frame)
            if flow.kind != "next":
                return flow
        return NEXT

    def written_out(self, stmt: syntax.Stmt, frame: Frame) -> tuple[syntax.Stmt, ...] | None:
        """The statements that stand for a statement, when what follows it has to be seen together with them."""
        handler = WRITTEN_OUT.get(type(stmt))
        try:
            found: tuple[syntax.Stmt, ...] | None = handler(self, stmt, frame) if handler else None
        except (CompileError, Cascade):
            return None  # evaluated again, and reported, as the statement that it is
        return found

    def guarded(self, stmt: syntax.Stmt, rest: tuple[syntax.Stmt, ...], frame: Frame) -> Flow:
        """One statement; a mistake in it is noted and the next one is tried."""
        try:
            if rest or (isinstance(stmt, syntax.If) and leaves(stmt)):
                assert isinstance(stmt, syntax.If)
                stmt = syntax.If(stmt.test, stmt.then + rest, stmt.otherwise + rest, span=stmt.span)
            flow = STATEMENTS[type(stmt)](self, stmt, frame)
            return flow if isinstance(flow, Flow) else NEXT
        except Cascade:
            if not self.errors:
                raise
        except CompileError as error:
            if frame.caller is not None and is_shipped(frame.file):
                raise  # one mistake for the whole call, at the author's place
            self.errors += error.errors if isinstance(error, CompileErrors) else [error]
        except RecursionError:
            self.errors.append(self.error("EK0112", "this statement is nested too deeply", stmt, frame))
        if len(self.errors) >= MAX_ERRORS:
            raise TooMany
        for name in syntax.assigned_names((stmt,)):
            frame.env[name] = Poisoned()
        return Flow("return", Poisoned()) if gives_value((stmt,)) else NEXT

    # calls

    def call(self, callee: Any, args: list[Any], keywords: dict[str, Any], node: syntax.Call, frame: Frame) -> Any:
        """Calls anything that can be called; arguments are values."""
        match callee:
            case Closure():
                return self.inline(callee, args, keywords, node, frame)
            case LibraryRef():
                return call_library(Call(self, node, frame), callee, args, keywords)
            case StubRef():
                return self.call_stub(callee.name, args, keywords, node, frame)
            case Bound():
                return callee.call(Call(self, node, frame), *args, **keywords)
            case _:
                handler = CALLABLES.get(type(callee))
                if handler is not None:
                    return handler(self, callee, args, keywords, node, frame)
        raise self.error("EK0207", f"{describe(callee)} cannot be called", node.function, frame)

    def call_stub(self, name: str, args: list[Any], keywords: dict[str, Any], node: syntax.Call, frame: Frame) -> Any:
        """Calls a name of the language by its rule, or by its row."""
        call = Call(self, node, frame)
        bound = bind_stub(call, name, args, keywords)
        function = RULES.get(name)
        if function is None:
            return call_row(call, name, list(bound.values()))
        return function(call, **bound)

    def inline(
        self, closure: Closure, args: list[Any], keywords: dict[str, Any], node: syntax.Node, frame: Frame
    ) -> Any:
        """Evaluates a function of the author's at this point."""
        function = closure.function
        home = closure.frame
        if len(frame.stack) > MAX_DEPTH:
            raise self.error("EK0108", f"calls are nested more than {MAX_DEPTH} deep", node, frame)
        if any(function is active for active in frame.stack):
            raise self.error(
                "EK0108",
                f"'{closure.name}' calls itself",
                node,
                frame,
                label="recursion",
                hint="kernels inline every call: write a loop instead",
            )
        inner = Frame(
            env=dict(home.env),
            program=home.program,
            file=home.file,
            typevars=home.typevars,
            caller=frame.location(node),
            path=(*frame.path, id(node)),
            stack=(*frame.stack, function),
            origins=dict(home.origins),
        )
        self.bind_params(closure, args, keywords, inner, node, frame)
        if isinstance(function, syntax.Lambda):
            value = self.expr(function.body, inner)
        else:
            flow = self.block(function.body, inner)
            value = flow.value if flow.kind == "return" else None
        self.locate(node, frame)
        if isinstance(value, Poisoned):
            raise Cascade
        return value

    def bind_params(
        self,
        closure: Closure,
        args: list[Any],
        keywords: dict[str, Any],
        inner: Frame,
        node: syntax.Node,
        frame: Frame,
    ) -> None:
        """Gives every parameter its argument or default."""
        params = closure.function.params
        positional = [p for p in params if not p.keyword_only]
        if len(args) > len(positional):
            raise self.error(
                "EK0208",
                f"'{closure.name}' takes {plural(len(positional), 'positional argument')}, not {len(args)}",
                node,
                frame,
                notes=[f"'{closure.name}' is defined at {closure.frame.place(closure.function)}"],
            )
        given = dict(zip((p.name for p in positional), args, strict=False))
        for name, value in keywords.items():
            if name in given or all(p.name != name for p in params):
                text = f"'{closure.name}' has no argument '{name}'"
                if name in given:
                    text = f"argument '{name}' of '{closure.name}' is given twice"
                hint = None if name in given else did_you_mean(name, [p.name for p in params])
                raise self.error("EK0208", text, node, frame, hint=hint)
            given[name] = value
        for param in params:
            if param.name not in given:
                if param.default is None:
                    raise self.error("EK0208", f"'{closure.name}' misses its argument '{param.name}'", node, frame)
                given[param.name] = self.expr(param.default, closure.frame)
            value = given[param.name]
            if param.annotation is not None:
                what = f"argument '{param.name}' of '{closure.name}' is declared as"
                value = self.annotated(param.annotation, value, inner, argument_node(node, param, params), frame, what)
            inner.env[param.name] = value
            inner.origins.pop(param.name, None)

    def annotated(
        self, annotation: syntax.Expr, value: Any, inner: Frame, node: syntax.Node, frame: Frame, what: str
    ) -> Any:
        """A value checked against, or taken as, the type that an annotation names."""
        type = self.expr(annotation, inner)
        if isinstance(type, SIMDType) and isinstance(value, Value | bool | int | float):
            return coerce(self, value, type, node, frame, f"{what} {type}")
        return value

    # globals

    def global_value(self, entry: GlobalEntry, frame: Frame, node: syntax.Node) -> Any:
        """The value of an entry of the program's table of globals."""
        match entry.kind:
            case "function" | "library":
                index = entry.value if entry.kind == "function" else entry.value[1]
                source = frame.program.functions[index]
                home = Frame({}, frame.program, source.file, frame.typevars, None, ())
                closure = Closure(source.syntax, home)
                return closure if entry.kind == "function" else LibraryRef(entry.value[0], closure)
            case "stub":
                return StubRef(entry.value)
            case "typevar":
                if entry.value not in frame.typevars:
                    raise self.error(
                        "EK0101",
                        f"the type variable '{entry.value}' has no dtype here: the signature does not use it",
                        node,
                        frame,
                        hint=did_you_mean(entry.value, frame.typevars)
                        or f'use it in a tensor\'s annotation, as in InputTensor[{entry.value}, "n"]',
                    )
                return frame.typevars[entry.value]
            case "marker":
                return Marker(entry.value)
            case "constant" if isinstance(entry.value, tuple):
                return tuple(self.global_value(item, frame, node) for item in entry.value)
        return entry.value

    # counting, for the guards against endless unrolling

    def count(self, node: syntax.Node, frame: Frame) -> None:
        """Counts a statement; ends the compilation of a program that grows without bounds."""
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            self.errors.append(
                self.error(
                    "EK0216",
                    f"this program unrolls to more than {MAX_STATEMENTS} statements",
                    node,
                    frame,
                    hint="unroll less: use `range` for the outer loops",
                )
            )
            raise TooMany


# Objects that are called like functions: types, methods; filled by the modules that know them.
CALLABLES: dict[type, Callable[..., Any]] = {}
