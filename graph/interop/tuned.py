"""Chooses the parameters of kernels under `@autotune` for a call: what was found before, or what is found now.

See also `tuning.search` (how candidates are tried).
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dsl.contract.gpus import has_peaks
from ...dsl.diagnostics.errors import EinkornError, GraphError, did_you_mean
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.environment.knobs import knobs
from ...dsl.package.findings import TunedCalls, keep, range_of
from ...dsl.package.library import LoadedKernel
from ...dsl.signature.schema import Form, OpSchema
from ...dsl.signature.tuning import TuningSpace, plain, sizes_by_name
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from ..driver.devices import Device, DeviceRef
from ..loading.compile import compiled_for, named_targets, targets_of
from ..loading.progress import shown_progress
from ..ops.tuned import finding_for, findings_about, values_of
from ..tuning.search import search
from ..tuning.table import TuningTable
from ..types.dims import Dim
from .binding import BoundCall
from .estimated import estimated
from .specialise import ArgumentKind, Specialisation, specialise, with_parameters

_log = logging.getLogger("einkorn.tune")
_lock = fork_lock()  # one search at a time: others would be timed with it


def tuned(made: Specialisation, loaded: LoadedKernel, given: BoundCall, values: Sequence[object]) -> dict[str, Any]:
    """The parameters for a call: what is chosen, unless the call says one of the parameters that are.

    Args:
        made: the kernel for the parameters of the call and these kinds of arguments.
        loaded: the kernel under `@autotune`, with variadic arguments as its signature has them.
        given: the call.
        values: an array, a buffer or a number for each tensor that goes in.
    """
    shapes = [getattr(value, "shape", ()) for value in values]
    best = known(made, loaded, shapes, given.named)
    space = loaded.tuning
    if best is None and space is not None and space.names.isdisjoint(given.named) and not knobs.no_jit:
        with _lock:
            best = known(made, loaded, shapes, given.named)
            if best is None:
                _, best = tune(made, loaded, space, values, given.counts)
                keep(best)
    return {**given.parameters, **(values_of(best, made.schema) if best is not None else {})}


Bounds = tuple[tuple[Dim, int, int], ...]  # sizes, of each the least and the most that a choice holds for


def choice(
    made: Specialisation, shapes: Sequence[Sequence[Any]], passed: Iterable[str]
) -> tuple[Specialisation, Bounds]:
    """The specialisation with the parameters that were found to be best for such a call, and for which sizes they are.

    Args:
        made: the kernel for the parameters of the call, and these kinds of arguments.
        shapes: of the inputs; what is not an int is not known.
        passed: the names of the parameters that the call passes.
    """
    loaded = made.loaded
    findings = loaded.findings
    names = {name for finding in findings for name, _ in finding.parameters}
    names |= set() if loaded.tuning is None else loaded.tuning.names
    if not names.isdisjoint(passed := set(passed)) or not names:
        return made, ()
    known_shapes = [[size if isinstance(size, int) else None for size in shape] for shape in shapes]
    best = known(made, loaded, known_shapes, passed)
    if best is not None:
        made, ranges = with_parameters(made, values_of(best, made.schema)), best.ranges
    else:  # what is found later, or for other sizes, does not hold for these
        key = loaded.tuning.key if loaded.tuning is not None else [n for f in findings for n, *_ in f.ranges]
        sizes = sizes_by_name(made.schema, known_shapes, made.parameters, dict.fromkeys(key))
        ranges = tuple((name, *range_of(size)) for name, size in sizes.items() if size is not None)
    symbols = [type.shape for type in made.inputs]
    dims = sizes_by_name(made.schema, symbols, made.parameters, [name for name, *_ in ranges])
    return made, tuple((Dim(dims[name]), low, high) for name, low, high in ranges)


def choices(made: Specialisation, passed: Iterable[str]) -> list[tuple[Specialisation, Bounds]]:
    """The specialisations among which calls of any sizes choose: the first of which all sizes are within the bounds.

    The last one is that of the default, without bounds. Arguments as of `choice`.
    """
    dtypes = [type.dtype.name for type in made.inputs]
    shapes, target = [type.shape for type in made.inputs], compiled_for(_device(made).driver)
    listed: list[tuple[Specialisation, Bounds]] = []
    for finding, sizes in findings_about(made.loaded, target, dtypes, shapes, passed, made.parameters):
        bounds = tuple((Dim(sizes[name]), low, high) for name, low, high in finding.ranges if name in sizes)
        if len(bounds) == len(finding.ranges):
            listed.append((with_parameters(made, values_of(finding, made.schema)), bounds))
            if not bounds:
                return listed
    return [*listed, (made, ())]


def sizes_of(made: Specialisation, space: TuningSpace, values: Sequence[object]) -> dict[str, int]:
    """The sizes of the dims of the key."""
    return sizes_by_name(made.schema, [getattr(value, "shape", ()) for value in values], made.parameters, space.key)


def known(
    made: Specialisation, loaded: LoadedKernel, shapes: Sequence[Sequence[int | None]], passed: Iterable[str]
) -> TunedCalls | None:
    """What was found before for such a call."""
    dtypes = [type.dtype.name for type in made.inputs]
    return finding_for(loaded, compiled_for(_device(made).driver), dtypes, shapes, passed, made.parameters)


def tune(
    made: Specialisation,
    loaded: LoadedKernel,
    space: TuningSpace,
    values: Sequence[object],
    counts: Mapping[str, int] | None = None,
) -> tuple[TuningTable, TunedCalls]:
    """Tries all candidates for these arguments.

    Raises:
        KernelError: EK0737, the default itself cannot be run.
    """
    device = _device(made)
    arrays = [value.to_numpy() if isinstance(value, Buffer) else value for value in values]
    kinds = [(type.dtype, type.rank) for type in made.inputs]
    several = counts or {}
    grouped = _grouped(loaded, kinds, several)
    model = _model(made, loaded, space, grouped, values)
    with shown_progress(made.schema.name, "tuning", "candidates") as show:
        table = search(
            loaded,
            space,
            grouped,
            _grouped(loaded, arrays, several),
            made.parameters,
            device,
            show=show,
            model=model,
        )
    _log.info("op '%s': %s of %d candidates", made.schema.name, table.parameters, len(table.candidates))
    for candidate, why in table.rejected:
        _log.info("op '%s': %s is rejected: %s", made.schema.name, candidate, why)
    return table, _finding(made, space, table, values, compiled_for(device.driver))


def _finding(
    made: Specialisation, space: TuningSpace, table: TuningTable, values: Sequence[object], target: str
) -> TunedCalls:
    """What a table says for calls like the one that it is about."""
    sizes = sizes_of(made, space, values)
    ranges = tuple((name, *range_of(size)) for name, size in sizes.items())
    chosen = tuple((name, plain(value)) for name, value in table.parameters.items())
    return TunedCalls(
        made.schema.name,
        made.loaded.portable.digest,
        target,
        tuple(type.dtype.name for type in made.inputs),
        tuple(sorted((n, plain(v)) for n, v in made.parameters.items() if n not in space.names)),
        ranges,
        chosen,
        table.ratio,
        importlib.metadata.version("einkorn"),
        tuple(table.rejected),
        not table.is_measured,
    )


def _model(
    made: Specialisation,
    loaded: LoadedKernel,
    space: TuningSpace,
    kinds: Sequence[ArgumentKind],
    values: Sequence[object],
) -> TuningTable | None:
    """The estimates of the candidates, where the device is a GPU whose figures are known."""
    device = _device(made)
    target = compiled_for(device.driver)
    if device.is_host or targets_of(device)[-1].simulates or not has_peaks(target):
        return None
    try:
        return estimated(loaded, space, kinds, [getattr(v, "shape", ()) for v in values], made.parameters, target)
    except EinkornError as error:
        _log.info("op '%s': no estimates: %s", made.schema.name, error.message)
        return None


def _grouped(loaded: LoadedKernel, values: Sequence[object], counts: Mapping[str, int]) -> list[Any]:
    """Values in the order of the signature, those of a variadic argument in a list."""
    rest = list(values)
    grouped: list[object] = []
    for argument in loaded.schema.inputs:
        if argument.form is Form.VARIADIC:
            grouped.append([rest.pop(0) for _ in range(counts[argument.name])])
        else:
            grouped.append(rest.pop(0))
    return grouped


def tune_op(
    loaded: LoadedKernel,
    space: TuningSpace,
    shapes: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, DType],
    parameters: Mapping[str, object],
    device: Device | None = None,
) -> tuple[TuningTable, TunedCalls]:
    """Tries all candidates for inputs of these shapes, with elements that are drawn.

    Args:
        loaded: a kernel without variadic arguments.
        space: what is tried.
        shapes: by the name of the input; one without axes may be left out.
        dtypes: by the name of the type variable; its first dtype when left out.
        parameters: those that are not tried.
        device: where it runs; the host when left out.

    Raises:
        GraphError: EK0732, the op has no such input or type variable, or a shape is missing.
        KernelError: EK0737, the default itself cannot be run.
    """
    sizes, kinds = _shapes(loaded, shapes, dtypes)
    made = specialise(loaded, kinds, {**_first(space, loaded.schema), **parameters}, device)
    made.output_shapes(sizes)  # which checks them
    rng = np.random.default_rng(0)
    drawn = [_drawn(rng, dtype, shape) for (dtype, _), shape in zip(kinds, sizes, strict=True)]
    return tune(made, loaded, space, drawn)


def estimate_op(
    loaded: LoadedKernel,
    space: TuningSpace,
    shapes: Mapping[str, Sequence[int]],
    dtypes: Mapping[str, DType],
    parameters: Mapping[str, object],
    target: str,
) -> tuple[TuningTable, TunedCalls]:
    """Estimates all candidates for a GPU that need not be here. Other arguments as of `tune_op`.

    Raises:
        GraphError: EK0732, the op has no such input or type variable, or a shape is missing.
        TargetError: EK0601, an unknown target, or one that no figures are known of.
        KernelError: EK0737, the default cannot be compiled for it.
    """
    name = named_targets([target])[0].name
    sizes, kinds = _shapes(loaded, shapes, dtypes)
    made = specialise(loaded, kinds, {**_first(space, loaded.schema), **parameters}, DeviceRef.GPU())
    made.output_shapes(sizes)
    table = estimated(loaded, space, kinds, sizes, made.parameters, name)
    return table, _finding(made, space, table, [_Shaped(shape) for shape in sizes], name)


class _Shaped:
    """What stands for an argument of which only the shape matters."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def _shapes(
    loaded: LoadedKernel, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, DType]
) -> tuple[list[tuple[int, ...]], list[tuple[DType, int]]]:
    """The shape of each input, and its dtype and rank."""
    schema = loaded.schema
    _check_names(schema, shapes, dtypes)
    sizes = [tuple(shapes.get(argument.name, ())) for argument in schema.inputs]
    known = [a.dtype if isinstance(a.dtype, DType) else dtypes.get(a.dtype) for a in schema.inputs]
    each = [dtype or schema.allowed(a.dtype)[0] for dtype, a in zip(known, schema.inputs, strict=True)]
    return sizes, [(dtype, len(shape)) for dtype, shape in zip(each, sizes, strict=True)]


def _first(space: TuningSpace, schema: OpSchema) -> dict[str, Any]:
    """A value for each parameter that is tried and has no default: the first."""
    required = {p.name for p in schema.parameters if p.required}
    return {name: values[0] for name, values in space.values if name in required}


def _check_names(schema: OpSchema, shapes: Mapping[str, object], dtypes: Mapping[str, object]) -> None:
    inputs, variables = [a.name for a in schema.inputs], [name for name, _ in schema.typevars]
    missing = [a.name for a in schema.inputs if a.name not in shapes and a.form is not Form.SCALAR and a.dims]
    for what, given, known in (("input", shapes, inputs), ("type variable", dtypes, variables)):
        for name in given:
            if name not in known:
                text = f"op '{schema.name}' has no {what} '{name}'"
                hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
                raise GraphError(text, code="EK0732", op=schema.name, argument=name, expected=known, hint=hint)
    if missing or schema.variadic:
        text = f"op '{schema.name}' cannot be tuned without the shape of '{(missing or inputs)[0]}'"
        written = " ".join(f"--shape {name}=64,64" for name in missing)
        hint = "tune it by calls: @autotune" if schema.variadic else f"on the command line {written}"
        raise GraphError(text, code="EK0732", op=schema.name, argument=(missing or inputs)[0], hint=hint)


def _drawn(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    """An array of small numbers."""
    if dtype is DType.bool:
        return rng.integers(0, 2, shape).astype(bool)
    drawn = rng.standard_normal(shape) if dtype.is_float() else rng.integers(0, 8, shape)
    return np.asarray(drawn).astype(dtype.to_numpy())


def _device(made: Specialisation) -> Device:
    return made.where if isinstance(made.where, Device) else made.where.to_device()
