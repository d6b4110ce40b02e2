"""Says what notebooks show of kernels, graphs, models, profiles and what else is `Rich`: a card of each.

An object may bring its card itself, by a method `card`; for the others there is a function here.

See also `cards` (how it is drawn).
"""

from __future__ import annotations

from functools import singledispatch

from ...dsl.diagnostics.cards import Card, CardTable, CodeBlock, Note, Part
from ...dsl.diagnostics.errors import EinkornError, plural
from ...dsl.frontend.caller import Called
from ...dsl.package.finding_tables import finding_tables
from ...dsl.signature.description import call_text
from ..engine.model import Model, TensorSpec
from ..passes.summaries import KernelSummary
from ..profiling.memory_counters import added
from ..profiling.profile import Profile
from ..profiling.profile_page import shown_time
from ..staging.graph import Graph
from ..tuning.table import TuningTable
from ..types.tensor_type import BufferType, ShapedType
from .specialise import AnyKernel, Specialisation, made_for


@singledispatch
def card_of(value: object) -> Card:
    """The card of an object."""
    own = getattr(value, "card", None)
    made = own() if callable(own) else Card(type(value).__name__, repr(value))
    assert isinstance(made, Card)
    return made


@card_of.register(Called)
def _kernel(kernel: AnyKernel) -> Card:
    schema = kernel.schema
    parts: list[Part] = [Note(schema.doc.strip())] if schema.doc.strip() else []
    dtypes = [(name, ", ".join(map(str, known))) for name, known in schema.typevars]
    changed = [(argument.name, "is changed in place") for argument in schema.mutable]
    made = made_for(kernel)
    if made:
        parts.append(_specialisations(made))
        if findings := made[0].loaded.findings:
            parts += finding_tables(findings)
    facts = [*dtypes, *changed, *([("defined at", str(schema.place))] if schema.place else [])]
    return Card("kernel", call_text(schema), parts, facts)


def _specialisations(made: list[Specialisation]) -> CardTable:
    rows = [
        (
            ", ".join(map(_shown, each.inputs)),
            ", ".join(map(_shown, each.outputs)),
            ", ".join(f"{name}={value!r}" for name, value in each.parameters.items()) or "none",
            str(each.device),
            "yes" if each.is_loaded else "no",
        )
        for each in made
    ]
    return CardTable(("takes", "gives", "parameters", "device", "ready"), rows, title="called with")


def _shown(type: ShapedType) -> str:
    """A type without its device."""
    changed = "changed " if isinstance(type, BufferType) else ""
    return f"{changed}{type.dtype}[{', '.join(map(str, type.shape))}]"


@card_of.register
def _graph(graph: Graph) -> Card:
    try:
        ir = graph.ir
    except EinkornError:
        return Card("graph", f"{graph.name}, which is not finished")
    listing = str(graph)
    parts = [_values("takes", ir.inputs), _values("gives", ir.output_types)]
    return Card(
        "graph",
        graph.name,
        [*parts, CodeBlock(listing, f"{plural(len(ir.nodes), 'node')}", folded=len(listing.splitlines()) > 20)],
    )


def _values(title: str, types: tuple[ShapedType, ...]) -> CardTable:
    rows = [(str(k), str(t.dtype), f"({', '.join(map(str, t.shape))})", str(t.device)) for k, t in enumerate(types)]
    return CardTable((title, "dtype", "shape", "device"), rows, numbers=(0,))


@card_of.register
def _model(model: Model) -> Card:
    parts: list[Part] = [_specs("takes", model.input_metadata), _specs("gives", model.output_metadata)]
    summaries = model.kernel_summaries
    if summaries:
        rows = [_summary(summary) for summary in summaries]
        parts.append(CardTable(("kernel", "computes where it reads", "does where it stores"), rows, title="what runs"))
    memory = [(name, f"{size:,} bytes") for name, size in model.memory.items() if size]
    return Card("model", model.ir.name, parts, memory)


def _specs(title: str, specs: list[TensorSpec]) -> CardTable:
    rows = [(s.name, str(s.dtype), f"({', '.join(map(str, s.dims))})", str(s.device)) for s in specs]
    return CardTable((title, "dtype", "shape", "device"), rows)


def _summary(summary: KernelSummary) -> tuple[str, ...]:
    def of(role: str) -> str:
        return ", ".join(str(op) for op in summary.ops if op.role == role)

    return of("root"), of("read"), of("store")


@card_of.register
def _profile(profile: Profile) -> Card:
    groups = profile.rows()
    rows = [
        (f"{r.share:.1%}", f"{r.share:.1%}", shown_time(r.total), shown_time(r.median), str(r.runs), r.model, r.name)
        for r in groups
    ]
    calls = [event for event in profile.events if event.kind == "call"]
    parts: list[Part] = []
    if rows:
        heads = ("share", "", "total", "median", "runs", "model", "group")
        parts.append(CardTable(heads, rows, numbers=(0, 2, 3, 4), bars=1))
    if profile.counted:
        parts.append(CodeBlock(added(profile.counted).table(), "memory"))
    time = sum(event.duration for event in calls)
    return Card("profile", f"{plural(len(calls), 'call')}, {shown_time(time)}", parts)


@card_of.register
def _tuning(table: TuningTable) -> Card:
    shapes = ", ".join("x".join(map(str, shape)) or "a number" for shape in table.shapes)
    measured, estimated = table.is_measured, table.is_estimated
    lasts = [(each.seconds if measured else each.estimate) or 0.0 for each in table.candidates]
    longest = max(lasts)
    rows = []
    for number in table.order:
        candidate = table.candidates[number]
        time = candidate.why if candidate.seconds is None else shown_time(1e9 * candidate.seconds)
        ratio = "" if candidate.ratio is None else f"{candidate.ratio:.2f}"
        marks = ", ".join(word for word, is_so in (("best", number == table.best), ("default", number == 0)) if is_so)
        cells = [str(getattr(value, "name", value)) for value in candidate.parameters.values()]
        if estimated:
            cells += ["" if candidate.estimate is None else shown_time(1e9 * candidate.estimate), candidate.wall]
        error = "" if candidate.error is None else f"{candidate.error:.1f}"
        cells += [time, ratio, error] if measured else [time]
        rows.append([*cells, marks, f"{100 * lasts[number] / longest:.1f}%"])
    heads = [*table.candidates[0].parameters, *(["estimate", "wall"] if estimated else [])]
    heads += ["a call", "times as fast", "ulp from float64", "", ""] if measured else ["not possible", "", ""]
    return Card("tuning", f"{table.op} ({shapes})", [CardTable(heads, rows, bars=len(heads) - 1)])
