"""Tests for ops: `check_op` derives cases from a signature and compares reference, interpreter and compiled code.

    from einkorn.testing import check_op

    def test_add_one():
        check_op("add_one", "kernels/addition.py", reference=lambda x: x + 1)

Cases are the dtypes that the signature allows, odd sizes and those around powers of two, zero sizes, packs of several
ranks, the same array given twice, arrays with strides, and special values. A case that fails is made small, and saved
as a program that shows the failure alone.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..dsl.diagnostics.errors import EinkornError, GraphError, PackageError, did_you_mean
from ..dsl.frontend.python.register import Kernel
from ..dsl.package.library import LibraryKernel, LoadedLibrary, library_of, load_library
from ..dsl.signature.parameters import bind_parameters
from ..dsl.signature.schema import Form, OpSchema, Role
from ..dsl.types.dtype import DType
from ..graph import BufferType, DeviceRef, Graph, InferenceSession, TensorType, ops
from ..graph.engine.model import Model
from ..graph.interop.checked import CALLERS, results_by
from ..graph.interop.elementwise import promised_axes
from .arguments import check_arguments
from .cases import (
    SIZES,
    Array,
    CaseInstance,
    Maker,
    cases,
    elements,
    instances,
    is_computed,
    layout,
    shape_of,
    strided,
)
from .failures import CheckError, Difference, Tolerance, difference, save, shrink, tolerance_for
from .gradients import check_gradients, check_has_backward, in_float64

__all__ = ["CheckError", "CheckReport", "check_op"]

WAYS = ("the reference", "the interpreter")
MEMBERS = 3  # of a promised batch that are compared with calls of their own, next to the last one
INTERPRETED = 600  # elements of all inputs up to which a case is interpreted, too

Outputs = Callable[..., Sequence[tuple[DType, Sequence[int]]]]


@dataclass
class CheckReport:
    """What `check_op` tried. `skipped` counts the cases that the signature refuses, `compared` says with what."""

    op: str
    cases: int = 0
    skipped: int = 0
    instances: int = 0
    compared: tuple[str, ...] = ()
    refusals: list[str] = field(default_factory=list)


def check_op(
    op: str | object,
    library: str | Path | None = None,
    *,
    reference: Callable[..., Any] | None = None,
    inputs: Sequence[Any] | None = None,
    expected: Sequence[Any] | None = None,
    parameters: Mapping[str, object] | Sequence[Mapping[str, object]] = (),
    dtypes: Mapping[str, Sequence[DType]] | None = None,
    ranks: Mapping[str, Sequence[int]] | None = None,
    sizes: Sequence[int] = SIZES,
    empty: bool = True,
    data: Mapping[str, Maker] | None = None,
    outputs: Outputs | None = None,
    tensors: int = 2,
    rtol: float | None = None,
    atol: float | None = None,
    special: bool | None = None,
    gradients: bool = False,
    callers: Sequence[str] = (),
    seed: int = 0,
    folder: str | Path = ".",
) -> CheckReport:
    """Compares compiled code with the interpreter, bit for bit, and with a reference, within a tolerance.

    Args:
        op: the op's name, or the function under `@register`.
        library: the kernel file, folder or package that has it; not needed for a function or an op that ships.
        reference: a function of the inputs as NumPy arrays (a list for a variadic argument) and, if it takes them, of
            the parameters; it returns an array, or a tuple. `@op.reference` when left out; without either, interpreter
            and code are compared alone.
        inputs, expected: one case of your own, and what shall come out.
        parameters: values for parameters; several sets in a list.
        dtypes, ranks: dtypes of a type variable (the first is tried most), numbers of axes of a pack.
        sizes, empty: what dims may be, and whether 0, too.
        data: makes the elements of an argument: `{"index": lambda rng, dtype, shape: rng.integers(0, 5, shape)}`.
        outputs: dtypes and shapes of outputs from the shapes of inputs, where the signature does not determine them.
        tensors: how many tensors a variadic argument stands for.
        rtol, atol: how far from the reference a float may be; by default 8 units in the last place of the element, and
            as much of the largest element. Integers and bools are equal.
        special: whether special values may stand together (NaN next to infinities and the largest numbers). By default
            they do where every argument has the same dims; elsewhere an array has one of them.
        gradients: whether the op's backward is compared with finite differences of the interpreter, too.
        callers: what else calls the op, with equal results: "direct", "torch", "jax".
        seed, folder: for other elements; where the program that shows a failure is saved.

    Raises:
        CheckError: EK0730, a difference; an `AssertionError`, too. EK0731, there is no case to try.
        GraphError: EK0732, the op lacks what is requested. PackageError: no library has it. CompileError: a mistake.
    """
    subject = _Subject.find(op, library, tensors)
    wanted = reference or subject.kernel.reference
    check_arguments(subject.schema, dtypes or {}, ranks or {}, data or {}, sizes, inputs, expected)
    report = CheckReport(subject.name, compared=WAYS[wanted is None and expected is None :])
    check = _OpCheck(subject, wanted, outputs, (rtol, atol), Path(folder), report, callers_of(callers))
    tried = (dtypes or {}, ranks or {}, subject.bound(parameters))
    check.all_of(inputs, expected, tried, _Choice(tuple(sizes), empty, special, data or {}, seed), gradients)
    return report


def callers_of(names: Sequence[str]) -> Sequence[str]:
    """The callers that are requested.

    Raises:
        GraphError: EK0478, one is not known.
    """
    for name in [names] if isinstance(names, str) else names:
        if name not in CALLERS:
            listed = ", ".join(CALLERS)
            hint = did_you_mean(str(name), CALLERS)
            text = f"callers= names {name!r}, and supports {listed}"
            raise GraphError(text, code="EK0478", argument="callers", expected=listed, got=name, hint=hint)
    return [names] if isinstance(names, str) else list(names)


@dataclass(frozen=True)
class _Choice:
    """What `check_op` was given about cases."""

    sizes: tuple[int, ...]
    empty: bool
    special: bool | None
    makers: Mapping[str, Maker]
    seed: int


class _Subject:
    """The op that is checked, and how it is called."""

    def __init__(self, name: str, source: LoadedLibrary, path: str | None, tensors: int) -> None:
        self.library = source
        self.path = path  # for a program of its own; None for an op that ships
        kernel = source.kernels[name]
        self.name = name
        self.kernel = kernel
        self.schema: OpSchema = kernel.expanded({a.name: tensors for a in kernel.schema.variadic}).schema
        self.mutable = [k for k, a in enumerate(self.schema.inputs) if a.role is Role.MUTABLE]

    @staticmethod
    def find(op: str | object, library: str | Path | None, tensors: int) -> _Subject:
        if isinstance(op, LibraryKernel):
            loaded = LoadedLibrary(op.loaded.origin, {op.schema.name: op.loaded})
            return _Subject(op.schema.name, loaded, op.loaded.origin, tensors)
        if not isinstance(op, str | Kernel):
            text = f"check_op takes the name of an op or a function under @register, not {op!r}"
            raise PackageError(text, code="EK0505", got=op)
        name = op if isinstance(op, str) else op.schema.name
        if library is None and not isinstance(op, str):
            library = op.function.__code__.co_filename
        if library is not None:
            loaded = load_library(library)
            if name not in loaded.kernels:
                raise PackageError(
                    f"'{library}' has no op '{name}'",
                    code="EK0505",
                    got=name,
                    expected=list(loaded.kernels),
                    hint=did_you_mean(name, list(loaded.kernels)),
                )
            return _Subject(name, loaded, str(Path(library).resolve()), tensors)
        shipped: dict[str, LoadedLibrary] = {}
        root = f"{__name__.split('.')[0]}.stdlib.kernels"
        for module in pkgutil.iter_modules(importlib.import_module(root).__path__, f"{root}."):
            result = library_of(importlib.import_module(module.name))
            shipped |= dict.fromkeys(result.kernels, result)
        if name not in shipped:
            hint = did_you_mean(name, list(shipped)) or "name the kernel file: check_op(name, 'kernels/')"
            raise PackageError(f"no op '{name}' ships with Einkorn", code="EK0505", got=name, hint=hint)
        return _Subject(name, shipped[name], None, tensors)

    def bound(self, parameters: Mapping[str, object] | Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
        """One set of parameters, or several, with defaults for what is left out."""
        several = [parameters] if isinstance(parameters, Mapping) else list(parameters) or [{}]
        return [bind_parameters(self.schema, values) for values in several]

    def grouped(self, values: Sequence[Any], *, scalars: bool) -> list[Any]:
        """Values in the order of the signature, those of a variadic argument in a list."""
        out: list[Any] = []
        groups: dict[str, list[object]] = {}
        for argument, value in zip(self.schema.inputs, values, strict=True):
            if argument.group:
                if argument.group not in groups:
                    groups[argument.group] = []
                    out.append(groups[argument.group])
                groups[argument.group].append(value)
            else:
                out.append(value[()] if scalars and argument.form is Form.SCALAR else value)
        return out

    def models(
        self, types: Sequence[tuple[DType, Sequence[int | str]]], parameters: Mapping[str, object], outs: object
    ) -> tuple[Model, Model]:
        """The op as compiled code, and for the interpreter."""
        graph = self.graph(types, parameters, outs)
        return InferenceSession(interpret=False).load(graph), InferenceSession(interpret=True).load(graph)

    def graph(
        self, types: Sequence[tuple[DType, Sequence[int | str]]], parameters: Mapping[str, Any], outs: Any
    ) -> Graph:
        """A graph of the op alone."""
        host = DeviceRef.CPU()
        call = ops.inplace_custom if self.mutable else ops.custom
        kinds = [BufferType if k in self.mutable else TensorType for k in range(len(types))]
        out_types = None if outs is None else [TensorType(dtype, shape, host) for dtype, shape in outs]

        def forward(*values: object) -> Any:
            result = call(self.name, host, self.grouped(values, scalars=False), out_types, parameters)
            return tuple(result)

        given = [kind(dtype, shape, host) for kind, (dtype, shape) in zip(kinds, types, strict=True)]
        return Graph(f"check of {self.name}", forward=forward, input_types=given, kernel_library=self.library)


_Tried = tuple[Mapping[str, Sequence[DType]], Mapping[str, Sequence[int]], list[dict[str, Any]]]


class _OpCheck:
    """One call of `check_op`."""

    def __init__(
        self,
        subject: _Subject,
        reference: Callable[..., Any] | None,
        outputs: Outputs | None,
        limits: tuple[float | None, float | None],
        folder: Path,
        report: CheckReport,
        callers: Sequence[str] = (),
    ) -> None:
        self.subject = subject
        self.reference = reference
        self.outputs = outputs
        self.limits = limits
        self.folder = folder
        self.report = report
        self.callers = callers

    def all_of(
        self,
        own: Sequence[object] | None,
        expected: Sequence[Any] | None,
        tried: _Tried,
        choice: _Choice,
        gradients: bool,
    ) -> None:
        """The outputs and, where they are requested, the gradients."""
        self.outputs_of(own, expected, tried, choice)
        if gradients:
            self.gradients_of(own, tried, choice)

    def outputs_of(
        self, own: Sequence[object] | None, expected: Sequence[Any] | None, tried: _Tried, choice: _Choice
    ) -> None:
        """What the op computes, on arrays of the caller's own or on cases of every instance."""
        dtypes, ranks, parameters = tried
        if own is not None:
            self.given([np.asarray(a) for a in own], expected, parameters[0])
            return
        for instance in instances(self.subject.schema, dtypes, ranks, parameters):
            self.instance(instance, choice)
        self.expect_cases()

    def gradients_of(self, own: Sequence[object] | None, tried: _Tried, choice: _Choice) -> None:
        """What the op's backward says, on the same."""
        dtypes, ranks, parameters = tried
        check_has_backward(self.subject.kernel)
        if own is not None:
            self.gradient([np.asarray(a) for a in own], parameters[0], "")
        else:
            wide = in_float64(self.subject.schema, dtypes)
            for instance in instances(self.subject.schema, wide, ranks, parameters):
                self.gradients(instance, choice)
        self.report.compared += ("finite differences",)

    def given(self, arrays: list[Array], expected: Sequence[Any] | None, parameters: dict[str, Any]) -> None:
        """One case of the caller's own."""
        types = [(DType.from_numpy(a.dtype), a.shape) for a in arrays]
        models = self.subject.models(types, parameters, self.outputs and self.outputs(*(a.shape for a in arrays)))
        self.compare(models, arrays, parameters, str(parameters or ""), expected)

    def expect_cases(self) -> None:
        """There was something to compare."""
        if not self.report.cases:
            name, refusals = self.subject.name, self.report.refusals
            raise CheckError(
                f"op '{name}' has no case to try: {refusals[0] if refusals else 'there are no dtypes'}",
                code="EK0731",
                op=name,
                hint="pass sizes=, data= or parameters= that fit the op",
            )

    def instance(self, instance: CaseInstance, choice: _Choice) -> None:
        """All cases of an instance; sizes are symbols, so that it is compiled once where that can be."""
        schema, parameters = self.subject.schema, dict(instance.parameters)
        shapes = layout(schema, instance)
        each = is_computed(shapes) or self.outputs is not None
        mixed = len({a.dims for a in schema.tensors if a.dims}) < 2 if choice.special is None else choice.special
        dtypes = [a.dtype if isinstance(a.dtype, DType) else dict(instance.dtypes)[a.dtype] for a in schema.inputs]
        models = None
        self.report.instances += 1
        for case in cases(shapes, instance, choice.sizes, choice.seed, empty=choice.empty):
            try:
                if models is None or each:
                    known = [shape_of(shape, case, instance) for shape in shapes] if each else shapes
                    outs = self.outputs(*known) if self.outputs is not None else None
                    models = self.subject.models(list(zip(dtypes, known, strict=True)), parameters, outs)
                arrays = elements(schema.inputs, shapes, instance, case, choice.makers, mixed=mixed)
                if case.way == "strided":
                    arrays = [strided(a) for a in arrays]
                self.compare(
                    models, arrays, parameters, "; ".join(filter(None, [str(instance), f"{case.way} elements"]))
                )
            except GraphError as error:
                if case.way == "strided" and error.code == "EK0453":
                    continue  # the call takes contiguous arrays only
                self.report.skipped += 1
                self.report.refusals.append(error.message)

    def gradients(self, instance: CaseInstance, choice: _Choice) -> None:
        """The backward next to finite differences, for two cases of an instance."""
        schema, parameters = self.subject.schema, dict(instance.parameters)
        shapes = layout(schema, instance)
        small = tuple(size for size in choice.sizes if size < 8) or choice.sizes
        results = [c for c in cases(shapes, instance, small, choice.seed, empty=False) if c.way == "ordinary"]
        for case in results[-2:]:
            arrays = elements(schema.inputs, shapes, instance, case, choice.makers, mixed=False)
            rng = np.random.default_rng(case.seed)
            for k, argument in enumerate(schema.inputs):  # away from where nothing can be differentiated, and small
                if arrays[k].dtype.kind == "f" and not {argument.name, argument.group} & set(choice.makers):
                    arrays[k] = np.asarray(rng.uniform(0.3, 1.7, arrays[k].shape), arrays[k].dtype)
            try:
                self.gradient(arrays, parameters, str(instance))
            except GraphError as error:
                self.report.skipped += 1
                self.report.refusals.append(error.message)

    def gradient(self, arrays: list[Array], parameters: dict[str, object], about: str) -> None:
        """The backward next to finite differences, for one call."""
        outs = self.outputs and self.outputs(*(a.shape for a in arrays))
        graph = self.subject.graph([(DType.from_numpy(a.dtype), a.shape) for a in arrays], parameters, outs)
        model = InferenceSession(interpret=True).load(graph)

        def run(inputs: Sequence[Array]) -> list[Array]:
            return [np.array(buffer.to_numpy()) for buffer in model(*inputs)]

        def group(values: Sequence[object]) -> list[Any]:
            return self.subject.grouped(values, scalars=True)

        check_gradients(self.subject.kernel, run, group, arrays, parameters, about)

    def run(self, model: Model, arrays: Sequence[Array]) -> list[Array]:
        """The outputs, and the inputs that were changed."""
        fresh = [a.copy() if k in self.subject.mutable else a for k, a in enumerate(arrays)]
        made = [np.array(b.to_numpy()) for b in model(*fresh)]
        return made + [fresh[k] for k in self.subject.mutable]

    def wanted(self, arrays: Sequence[Array], parameters: Mapping[str, Any]) -> list[Array]:
        """What the reference says."""
        assert self.reference is not None
        fresh = [a.copy() for a in arrays]
        takes = dict(parameters)
        if inspect.isfunction(self.reference):
            accepted = inspect.signature(self.reference).parameters.values()
            if not any(p.kind is p.VAR_KEYWORD for p in accepted):
                takes = {p.name: parameters[p.name] for p in accepted if p.name in parameters}
        with np.errstate(all="ignore"):
            result = self.reference(*self.subject.grouped(fresh, scalars=True), **takes)
        listed = list(result) if isinstance(result, tuple) else [] if result is None else [result]
        return [np.asarray(a) for a in listed] + [fresh[k] for k in self.subject.mutable]

    def compare(
        self,
        models: tuple[Model, Model],
        arrays: list[Array],
        parameters: dict[str, Any],
        about: str,
        expected: Sequence[Any] | None = None,
    ) -> None:
        """Raises CheckError when the ways differ on a case."""
        compiled, interpreted = models
        exact = not self.subject.schema.fastmath

        def trial(inputs: list[Array]) -> Difference | None:
            got = self.run(compiled, inputs)
            if expected is not None:
                goal: list[Array] | None = [np.asarray(a) for a in expected]
            else:
                goal = self.wanted(inputs, parameters) if self.reference is not None else None
            if goal is not None:
                result = difference(goal, got, [self.tolerance(a) for a in goal], "the reference", "compiled code")
                if result is not None:
                    return result
            result = self.called(inputs, parameters, got) or self.members(inputs, parameters, got)
            if result is not None or sum(a.size for a in inputs) > INTERPRETED:
                return result
            stepped = self.run(interpreted, inputs)
            # A kernel that lets sums be reordered has no one result.
            limits = [Tolerance.exact() if exact else self.tolerance(a) for a in stepped]
            return difference(stepped, got, limits, "the interpreter", "compiled code")

        result = trial(arrays)
        self.report.cases += 1
        if result is None:
            return
        small = arrays if expected is not None else shrink(arrays, lambda inputs: self._fails(trial, inputs))
        result = trial(small) or result
        file = save(self.folder, self.subject.name, self.subject.path, small, parameters, result)
        raise result.error(self.subject.name, small, about, file)

    def called(self, inputs: list[Array], parameters: dict[str, Any], got: list[Array]) -> Difference | None:
        """How the results of another caller differ from those of the graph, if they do."""
        schema = self.subject.schema
        outs = self.outputs and self.outputs(*(a.shape for a in inputs))
        for caller in self.callers:
            limits = [self.tolerance(a) if schema.fastmath else Tolerance.exact() for a in got]
            fresh = [a.copy() if k in self.subject.mutable else a for k, a in enumerate(inputs)]
            there = results_by(caller, self.subject.kernel, schema, fresh, parameters, outs)
            result = None if there is None else difference(got, there, limits, "compiled code", f"the caller {caller}")
            if result is not None:
                return result
        return None

    def members(self, inputs: list[Array], parameters: dict[str, Any], got: list[Array]) -> Difference | None:
        """How calls for single members of a promised batch differ from the call for all of them, if they do."""
        schema = self.subject.schema
        axes = promised_axes(schema, [a.ndim for a in inputs]) or ()
        count = next((a.shape[0] for a, own in zip(inputs, axes, strict=False) if own), 0)
        for k in sorted({*range(min(count, MEMBERS)), *range(max(count - 1, 0), count)}):
            alone = [a[k : k + 1] if own else a for a, own in zip(inputs, axes, strict=True)]
            outs = self.outputs and self.outputs(*(a.shape for a in alone))
            there = results_by("direct", self.subject.kernel, schema, alone, parameters, outs)
            if there is None:
                return None
            limits = [self.tolerance(a) if schema.fastmath else Tolerance.exact() for a in there]
            parts = [a[k : k + 1] for a in got]
            result = difference(there, parts, limits, f"a call for member {k} of the batch", "the call for all")
            if result is not None:
                return result
        return None

    @staticmethod
    def _fails(trial: Callable[[list[Array]], Difference | None], inputs: list[Array]) -> bool:
        try:
            return trial(inputs) is not None
        except EinkornError:
            return False

    def tolerance(self, array: Array) -> Tolerance:
        return tolerance_for(array, *self.limits)
