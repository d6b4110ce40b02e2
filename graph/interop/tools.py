"""Compiles kernels ahead of calls, shows what they become, and times them: what kernels have as methods."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dsl.diagnostics.cards import Card, CardTable, Note
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.rich import Rich
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.files import replace_file
from ...dsl.environment.tracebacks import placed
from ...dsl.signature.description import call_text
from ...dsl.signature.dims import Pack
from ...dsl.signature.parse_dims import parse_dims
from ..driver.devices import Device
from ..loading.compile import explorer_page, stage_text
from ..profiling.static_roofline import roofline_html
from ..types.dims import StaticDim
from ..types.tensor_type import ShapedType
from .binding import BoundCall, bind_call
from .direct import called, kind_of
from .kinds import Operand, device_of_call, operand_of
from .specialise import AnyKernel, Specialisation, prepared, specialised
from .spread import spread_of

if TYPE_CHECKING:
    from ..engine.export import ExportOptions, ExportSource


@placed
def compiled(
    kernel: AnyKernel, examples: Sequence[object], checks: str | None, parameters: Mapping[str, object]
) -> Compiled:
    """What `kernel.compile(...)` gives."""
    made, given = _made(kernel, examples, checks, parameters)
    _ = made.model
    return Compiled(kernel, made, given)


@placed
def inspected(
    kernel: AnyKernel, examples: Sequence[object], stage: str, target: str, parameters: Mapping[str, object]
) -> str:
    """What `kernel.inspect(...)` gives."""
    made, given = _made(kernel, examples, None, parameters)
    return stage_text(prepared(kernel).loaded, _instance(made, given), target, stage)


@placed
def explored(
    kernel: AnyKernel, examples: Sequence[object], target: str | tuple[str, ...], parameters: Mapping[str, object]
) -> Page:
    """What `kernel.explore(...)` gives."""
    made, given = _made(kernel, examples, None, parameters)
    targets = [target] if isinstance(target, str) else list(target)
    sizes = _sizes(made, given)
    page = explorer_page(prepared(kernel).loaded, _instance(made, given), targets, sizes, roofline_html)
    return Page(kernel.schema.name, page)


def _made(
    kernel: AnyKernel, examples: Sequence[object], checks: str | None, parameters: Mapping[str, object]
) -> tuple[Specialisation, BoundCall]:
    """The specialisation for such arguments."""
    state = prepared(kernel)
    given = bind_call(state.schema, tuple(examples), parameters)
    op = state.schema.name
    operands: list[Operand] = []
    names = [argument.name for argument in state.schema.inputs]
    for number, value in enumerate(given.values):
        name = names[number] if number < len(names) else f"argument {number}"
        operands.append(_of_type(value) if isinstance(value, ShapedType) else operand_of(value, op, name))
    device = device_of_call(op, names, operands)
    kinds = [kind_of(operand) for operand in operands]
    spread = spread_of([operands[k].shape for k in state.joint])
    made = specialised(kernel, state, kinds, given.counts, given.parameters, device, checks, None, spread)
    return made, given


def _sizes(made: Specialisation, given: BoundCall) -> dict[str, int]:
    """The sizes of the examples by the names of their axes; types may leave sizes open."""
    found: dict[str, int] = {}
    for name, (number, axis) in made.symbols.items():
        size = list(getattr(given.values[number], "shape", ()))[axis : axis + 1]
        if size and isinstance(size[0], int | StaticDim):
            found[name] = int(size[0])
    return found


def _of_type(type: ShapedType) -> Operand:
    return Operand(type, type, "type", type.dtype, (0,) * type.rank, type.device.to_device())


def _instance(made: Specialisation, given: BoundCall) -> dict[str, Any]:
    """The specialisation in the words of `einkorn inspect`."""
    schema = made.schema
    types = [*zip(schema.inputs, made.inputs, strict=True), *zip(schema.outputs, made.outputs, strict=True)]
    dtypes = {str(argument.dtype): type.dtype.name for argument, type in types if isinstance(argument.dtype, str)}
    items = [item for argument in schema.inputs for item in parse_dims(argument.dims)]
    free = {item.name for item in items if isinstance(item, Pack) and item.count is None and item.name != "_"}
    ranks = {name: len(axes) for name, axes in made.names.packs.items() if name in free}
    return {"dtypes": dtypes, "ranks": ranks, "parameters": given.parameters, "tensors": dict(schema.counts)}


@dataclass(frozen=True, eq=False)
class Compiled(Rich):
    """A kernel that is compiled for arguments of some dtypes and ranks; it is called like the kernel.

    Attributes:
        kernel: the kernel.
        made: what it is compiled for.
    """

    kernel: AnyKernel
    made: Specialisation
    given: BoundCall

    @placed
    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Runs it, as the kernel; compile-time parameters are those that it was compiled with.

        Raises:
            GraphError: EK0854 the arguments are of other dtypes or ranks.
        """
        state = prepared(self.kernel)
        given = bind_call(state.schema, args, self.given.parameters | ({} if out is None else {"out": out}))
        return called(self.kernel, state, given, made=self._check)

    def __reduce__(self) -> tuple[Any, ...]:
        made = self.made
        kinds = [(type.dtype, type.rank) for type in made.inputs]
        given = dataclasses.replace(self.given, values=[])
        return _compiled_again, (self.kernel, kinds, given, made.device.to_device(), made.checks)

    def __copy__(self) -> Compiled:
        return self

    def __deepcopy__(self, memo: object) -> Compiled:
        return self

    def _check(self, other: Specialisation) -> Specialisation:
        """What runs a call for which this would be the specialisation."""
        if other.inputs != self.made.inputs:
            raise GraphError(
                f"op '{self.kernel.schema.name}' is compiled for {_shown(self.made)}, and called with {_shown(other)}",
                code="EK0854",
                place=user_place(),
                op=self.kernel.schema.name,
                expected=_shown(self.made),
                got=_shown(other),
                hint="call the kernel itself, which is compiled for the arguments of each call",
            )
        return self.made

    def code(self, stage: str = "typed", target: str = "host") -> str:
        """The text of a stage of its compilation: "typed", "mlir", "llvm", "asm" or "sass"."""
        return stage_text(self.made.loaded, _instance(self.made, self.given), target, stage)

    @placed
    def export(
        self,
        path: str | PathLike[str],
        *,
        header: str | PathLike[str] | None = None,
        name: str | None = None,
        targets: str | Sequence[str] = (),
        threads: bool = True,
        debug: bool = False,
    ) -> None:
        """Writes the kernel as a file with C functions; see `Model.export`. Parameters are called as in the kernel."""
        with shielded():
            from ..engine.export import ExportOptions, export_models  # few processes export

        options = ExportOptions.of(targets, "inside", threads, debug)
        export_models([self.export_source(options, name)], path, header=header, options=options)

    def export_source(self, options: ExportOptions, name: str | None = None) -> ExportSource:
        """What is exported of the kernel."""
        schema = self.made.schema
        outputs = [argument.name for argument in schema.outputs]
        inputs = [argument.name for argument in schema.inputs]
        source = self.made.model.export_source(options, name or schema.name, outputs)
        return dataclasses.replace(source, input_names=inputs)

    def card(self) -> Card:
        """What notebooks show."""
        outputs = ", ".join(map(str, self.made.outputs))
        facts = [("takes", _shown(self.made)), *([("gives", outputs)] if outputs else [])]
        facts += [(name, repr(value)) for name, value in self.given.parameters.items()]
        return Card("compiled kernel", call_text(self.kernel.schema), (), facts)

    def __repr__(self) -> str:
        return f"<compiled {self.kernel.schema.name} for {_shown(self.made)}>"


@placed
def _compiled_again(
    kernel: AnyKernel, kinds: Sequence[Any], given: BoundCall, device: Device, checks: str | None
) -> Compiled:
    """What was pickled, compiled in this process."""
    made = specialised(kernel, prepared(kernel), kinds, given.counts, given.parameters, device, checks)
    _ = made.model
    return Compiled(kernel, made, given)


def _shown(made: Specialisation) -> str:
    return ", ".join(str(type) for type in made.inputs)


@dataclass(frozen=True)
class Page(Rich):
    """A page of `explore`: HTML without references to other files."""

    op: str
    html: str

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page into a file."""
        replace_file(Path(path), [self.html.encode()])

    def _repr_html_(self) -> str:
        text = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{text}" style="width:100%;height:40em;border:0"></iframe>'

    def card(self) -> Card:
        """What a prompt shows, where there are no pages."""
        return Card("page", f"{self.op} · einkorn explore", [Note("save(path) writes it into a file for a browser")])

    def __repr__(self) -> str:
        return f"<page of {self.op}, {len(self.html):,} characters: save(path) writes it>"


# *** times ***

ROUNDS = 9
ROUND_TIME = 0.01  # seconds, of one function


@dataclass(frozen=True)
class FunctionTimes:
    """The times of one function: nanoseconds a call, the median of all rounds and the best."""

    name: str
    median: float
    best: float


@dataclass(frozen=True)
class Benchmark(Rich):
    """What `benchmark` measured: the kernel first, then its peers."""

    rows: tuple[FunctionTimes, ...]

    def card(self) -> Card:
        """What notebooks show."""
        first = self.rows[0].median
        rows = [(r.name, _time(r.median), _time(r.best), f"{r.median / first:.2f}") for r in self.rows]
        table = CardTable(("function", "median", "best", "against the kernel"), rows, numbers=(1, 2, 3))
        return Card("times of a call", self.rows[0].name, [table])

    def __str__(self) -> str:
        return self.card().text()


@placed
def benchmarked(
    kernel: AnyKernel, args: Sequence[object], peers: Mapping[str, Callable[..., object]], kwargs: Mapping[str, object]
) -> Benchmark:
    """What `kernel.benchmark(...)` gives: rounds of calls, the functions in turns."""
    functions: dict[str, Callable[[], Any]] = {kernel.schema.name: partial(kernel, *args, **kwargs)}
    functions |= {name: partial(peer, *args) for name, peer in peers.items()}
    for function in functions.values():  # compilation, doors, caches
        for _ in range(4):
            function()
    counts = {name: _count(function) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            times[name].append(_timed(function, counts[name]))
    return Benchmark(
        tuple(FunctionTimes(name, statistics.median(result), min(result)) for name, result in times.items())
    )


def _count(function: Callable[[], Any]) -> int:
    """How many calls make a round."""
    return max(1, min(100_000, int(ROUND_TIME * 1e9 / max(1.0, _timed(function, 3)))))


def _timed(function: Callable[[], Any], count: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(count):
        function()
    return (time.perf_counter_ns() - begin) / count


def _time(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
