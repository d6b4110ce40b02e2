"""Exports models: files through which C programs call them, without Python and without a compiler.

See also `dsl.contract.exports` (what the door of a graph is written from), `compiler.export` (the file).
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...dsl.contract.checks import Checks
from ...dsl.contract.exports import (
    EXPECTED,
    GOT,
    WRONG_SIZE,
    ExportSpec,
    ExportTemporary,
    ExportTensor,
    ExportWeight,
    GivenWeight,
    Shown,
    SizeLimit,
    SizeRelation,
    WeightsFile,
)
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError, TargetError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.environment.compiling import compiling
from ...dsl.environment.files import replace_file, replacing
from ...dsl.environment.tracebacks import placed
from ...dsl.signature.dims import DimNumber, Expression
from ...dsl.types.dtype import DType
from ...dsl.types.packing import pack
from ..arguments import choice_of, flag_of, path_of, text_of, texts_of
from ..calling.doors import expression, small_call
from ..calling.stages import Stage, stages_of
from ..driver.device import Storage
from ..ir import ConstantTensor, External, GraphIR, Node, PreparedValue
from ..loading.compile import (
    ExportedCode,
    export_code,
    export_machines,
    header_code,
    host_target,
    named_targets,
    write_export,
)
from ..types.dims import Dim, StaticDim, SymbolicDim
from ..types.tensor_type import BufferType, bytes_of_static, shown
from .c_names import CODE, CNames, check_name, function_name, names_of_outputs
from .export_messages import MessageTable, refused, shown_place
from .exported_weights import StoredWeight, lay_out, write_weights
from .graph_package import write_graph_package
from .weights import without_unread

_log = logging.getLogger("einkorn.export")

SHARED, OBJECT, PACKAGE = ".so", ".o", ".pkg"
MIN_APART = 256  # bytes of a weight: smaller ones stay with the code
MOST_IN_OBJECT = 1 << 30  # bytes of weights in an object: system linkers place them within 2 GiB of the code
SLOW_TARGET = "x86-64-v2"
PACKAGED = "packaged"  # of `ExportOptions.weights`: all but single numbers are given, under the numbers of their nodes
INT = DType.int64


@dataclass(frozen=True)
class ExportOptions:
    """How a file is exported; see `Model.export`."""

    targets: tuple[str, ...] = ()
    weights: str = "inside"
    threads: bool = True
    debug: bool = False

    @staticmethod
    def of(targets: str | Sequence[str], weights: str, threads: bool, debug: bool) -> ExportOptions:
        """The options; one target may be given as a text.

        Raises:
            GraphError: an argument is of a wrong type, or of no value that there is.
        """
        names = [targets] if isinstance(targets, str) else texts_of("targets", targets, "names of targets", CODE)
        return ExportOptions(
            tuple(names),
            choice_of("weights", weights, ("inside", "beside", "given"), CODE),
            flag_of("threads", threads),
            flag_of("debug", debug),
        )

    def of_file(self, path: object) -> ExportOptions:
        """The same with the targets of a file: a package has code for the level of this machine when none is named."""
        if self.targets or not str(path).endswith(PACKAGE):
            return self
        return replace(self, targets=tuple(target.name for target in named_targets(("host",))))


@dataclass(frozen=True, eq=False)
class ExportSource:
    """What is exported of a model.

    Attributes:
        ir: its graph, after all passes.
        weights: the storage of each weight by the number of its node.
        checks: what the session said that code checks.
        name, output_names, input_names: what functions and parameters are called; see `Model.export`.
    """

    ir: GraphIR
    weights: Mapping[int, Storage]
    checks: Checks | None
    name: str | None = None
    output_names: Sequence[str] | None = None
    input_names: Sequence[str] | None = None


@placed
def packed_for(ir: GraphIR, options: ExportOptions) -> int | None:
    """The width of vectors for which weights have to be packed anew: 0 for none, where they stay as they were given.

    None where the graph can stay as it is.
    """
    if not any(isinstance(item, PreparedValue) for item in ir.nodes):
        return None
    if options.weights == "given":
        return 0
    machines = named_targets(options.targets) if options.targets else export_machines(())
    widths = {machine.vector_bits for machine in machines}
    if widths == {host_target().vector_bits}:
        return None
    return widths.pop() if len(widths) == 1 else 0


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """What the door of a model is written from, its code for each target, and its weights."""

    spec: ExportSpec
    code: ExportedCode = field(repr=False)
    arrays: tuple[Any, ...] = field(repr=False)
    stored: tuple[StoredWeight, ...] = field(default=(), repr=False)  # in the file of weights


@compiling
@placed
def export_models(
    models: Sequence[ExportSource],
    path: str | PathLike[str],
    *,
    header: str | PathLike[str] | None,
    options: ExportOptions,
) -> None:
    """Writes the file of some models, and its header; see `Model.export`."""
    target = Path(path_of("path", path, CODE))
    if header is not None:
        header = path_of("header", header, CODE)
    models = [_with_texts(model if options.weights == "given" else _as_read(model)) for model in models]
    if target.suffix == PACKAGE and len(models) == 1:
        one = models[0]
        doors = _doors(one, options)
        write_graph_package(target, one.ir, one.weights, one.checks, one.name, one.output_names, options.targets, doors)
        return
    if target.suffix not in (SHARED, OBJECT):
        endings = (SHARED, OBJECT, PACKAGE) if len(models) == 1 else (SHARED, OBJECT)
        what, listed = "a model is" if len(models) == 1 else "several models are", ", ".join(endings[:-1])
        raise GraphError(
            f"{what} exported to a file that ends in {listed} or {endings[-1]}, not to '{target.name}'",
            code=CODE,
            place=user_place(),
            argument="path",
            expected=endings,
            got=target.suffix,
        )
    if SLOW_TARGET in options.targets:
        _log.warning("%s has no fused multiply-add: calls of fmaf take its place, and products are slow", SLOW_TARGET)
    if target.suffix == OBJECT and options.weights == "inside" and _weight_bytes(models) > MOST_IN_OBJECT:
        _log.warning(
            "the weights have more than %d bytes, too many for an object: they are written to %s.safetensors, which "
            "programs open by NAME_open_weights",
            MOST_IN_OBJECT,
            target.name,
        )
        options = replace(options, weights="beside")
    made = [export_model(model, options) for model in models]
    if len({each.spec.name for each in made}) < len(made):
        raise refused(
            models[0].ir, "several of the models have the same name", "names that differ", "give each a name="
        )
    try:
        _write_files(made, target, header, options)
    except OSError as error:
        raise_if_of_handler(error)
        file = error.filename2 or error.filename or target
        raise GraphError(
            f"the model cannot be written to '{file}': {error.strerror or error}",
            code=CODE,
            place=user_place(),
            argument="path",
            expected="a file in a folder that exists and is writable",
            got=str(target),
        ) from None


def _write_files(made: Sequence[ExportedModel], target: Path, header: str | None, options: ExportOptions) -> None:
    if options.weights == "beside":
        made = _write_apart(target, made)
    arrays = {id(array): array for each in made for array in each.arrays}  # the linker finds the equal ones
    number = {key: k for k, key in enumerate(arrays)}
    with replacing(target) as file:
        write_export(
            file,
            [(each.spec, each.code, tuple(number[id(array)] for array in each.arrays)) for each in made],
            [*arrays.values()],
            relocatable=target.suffix == OBJECT,
            soname=target.name,
            debug=options.debug,
        )
    if header is not None:
        replace_file(Path(header), [header_code([each.spec for each in made], Path(header).name).encode()])


def _doors(source: ExportSource, options: ExportOptions) -> list[tuple[str, bytes]]:
    """What C programs call in a package, by architecture: exported files, which are given the weights of the package.

    None where the graph cannot be exported, which the log says.
    """
    names: dict[str, list[str]] = {}
    for machine in named_targets(options.targets or ("host",)):
        names.setdefault(machine.architecture, []).append(machine.name)
    source = replace(source, name=function_name(source.name or source.ir.name))
    doors = []
    try:
        for key in sorted(names):
            made = export_model(source, replace(options, targets=tuple(names[key]), weights=PACKAGED))
            file = io.BytesIO()
            write_export(file, [(made.spec, made.code, tuple(range(len(made.arrays))))], made.arrays)
            doors.append((key, file.getvalue()))
    except (GraphError, TargetError) as error:
        _log.warning("the package has no code for C programs: %s", error.message)
        return []
    return doors


def _as_read(source: ExportSource) -> ExportSource:
    """The source without weights that its code does not read, since others were computed of them."""
    ir, weights = without_unread(source.ir, source.weights)
    return replace(source, ir=ir, weights=weights)


def _with_texts(source: ExportSource) -> ExportSource:
    """The source, whose names are texts; refuses others."""
    name, outputs = source.name, source.output_names
    return replace(
        source,
        name=None if name is None else text_of("name", name),
        output_names=None if outputs is None else texts_of("output_names", outputs, "names", CODE),
    )


def _weight_bytes(models: Sequence[ExportSource]) -> int:
    """The bytes of the weights of some models, those that they share once."""
    weights = {id(weight): weight for model in models for weight in model.weights.values()}
    return sum(weight.nbytes for weight in weights.values() if isinstance(weight, np.ndarray))


def _write_apart(path: Path, made: Sequence[ExportedModel]) -> list[ExportedModel]:
    """Writes the weights into a file next to `path`, those that models share once; the models, which know the file."""
    weights: dict[int, StoredWeight] = {}  # by identity of the array
    for each in made:
        weights |= {id(weight.array): weight for weight in each.stored if id(weight.array) not in weights}
    file, places, header = lay_out([*weights.values()])
    with replacing(path.with_name(f"{path.name}.safetensors")) as stream:
        write_weights(stream, header, [*weights.values()], places)
    place = dict(zip(weights, places, strict=True))
    return [replace(each, spec=_with_file(each, file, place)) for each in made]


def _with_file(made: ExportedModel, file: WeightsFile, place: Mapping[int, int]) -> ExportSpec:
    given = tuple(
        replace(weight, offset=place[id(stored.array)])
        for weight, stored in zip(made.spec.given, made.stored, strict=True)
    )
    return replace(made.spec, given=given, file=file if given else None)


def export_model(source: ExportSource, options: ExportOptions) -> ExportedModel:
    """What the file of a model is written from.

    Raises:
        GraphError: EK0483 the model cannot be exported, or a name is none in C.
    """
    ir = source.ir
    if len(ir.devices) > 1 or not ir.device.to_device().is_host:
        raise refused(ir, f"it uses {', '.join(map(str, ir.devices))}", "a graph for the host", "export runs on CPUs")
    return _Exporting(source, export_code(ir, options.targets, source.checks), options).run()


class _Exporting:
    """Makes the spec of a model's door."""

    def __init__(self, source: ExportSource, code: ExportedCode, options: ExportOptions) -> None:
        self.source, self.ir, self.code, self.plan, self.options = source, source.ir, code, code.plan, options
        self.name = function_name(source.ir.name) if source.name is None else source.name
        self.stages: list[Stage] = stages_of(self.ir, self.plan)
        self.table = MessageTable(self.ir, code, self.name)
        self.weights: list[ExportWeight] = []
        self.arrays: list[Any] = []
        self.given: list[GivenWeight] = []
        self.stored: list[StoredWeight] = []

    def run(self) -> ExportedModel:
        ir, plan = self.ir, self.plan
        check_name(self.name)
        taken = CNames()
        given = self.source.input_names or ir.argument_names
        names = [taken.new(each) for each in given]
        outputs = [taken.new(each) for each in names_of_outputs(ir, self.source.output_names)]
        self.dims: dict[str, str] = {}
        for type in ir.inputs:
            for dim in type.shape:
                for each in dim.parameters:
                    self.dims[each] = self.dims.get(each) or taken.new(each)
        passed = tuple(self.dims.values())
        late: list[tuple[str, ...]] = []
        for step in plan.steps:
            self.dims |= {each: taken.new(each) for each in step.names}
            late.append(tuple(self.dims[each] for each in step.names))
        self.table.add_sites()
        inputs = tuple(
            ExportTensor(name, type.dtype, self._axes(type.shape), isinstance(type, BufferType))
            for name, type in zip(names, ir.inputs, strict=True)
        )
        given_back = tuple(
            ExportTensor(name, type.dtype, self._axes(type.shape), stage=plan.stage_of(*type.shape))
            for name, type in zip(outputs, ir.output_types, strict=True)
        )
        self.table.add_tensors((*inputs, *given_back), (*passed, *sum(late, ())))
        checks = (*self._input_checks(names), *self._size_checks())
        pointers, temps = self._pointers()
        self.table.add_weights(self.given)
        spec = ExportSpec(
            self.name,
            ir.name,
            ", ".join(self.code.target_names),
            passed,
            tuple(late),
            inputs,
            given_back,
            pointers,
            tuple((self._size(dim), plan.stage_of(dim)) for dim in plan.slots),
            checks,
            temps,
            plan.copies,
            tuple(self.weights),
            tuple(self.table.messages),
            tuple(self.table.rows.items()),
            small_call(ir)[0],
            self.code.stack,
            self.options.threads,
            given=tuple(self.given),
            branches=plan.parts is not None and bool(plan.parts.controls),
        )
        spec = replace(spec, digest=hashlib.sha256(f"{spec!r} {self.code.digest}".encode()).hexdigest())
        return ExportedModel(spec, self.code, tuple(self.arrays), tuple(self.stored))

    def _size(self, dim: Dim) -> Expression:
        return expression(dim, self.dims)

    def _axes(self, shape: Iterable[Dim]) -> tuple[Expression, ...]:
        return tuple(self._size(dim) for dim in shape)

    # *** sizes ***

    def _input_checks(self, names: Sequence[str]) -> Iterator[SizeRelation | SizeLimit]:
        """That the sizes which inputs have by their expressions are sizes."""
        for k, type in enumerate(self.ir.inputs):
            name = names[k]
            dims = [dim for dim in type.shape if not isinstance(dim, StaticDim)]
            for axis, dim in enumerate(type.shape):
                if not isinstance(dim, StaticDim | SymbolicDim):
                    row = self.table.row(
                        f"error[EK0475]: axis {axis} of '{name}', {dim}, would have size ",
                        Shown(GOT, INT),
                        status=WRONG_SIZE,
                        argument=k,
                        axis=axis,
                    )
                    yield SizeRelation("at_least", self._size(dim), DimNumber(0), row)
            if dims:
                row = self.table.row(
                    f"error[EK0476]: '{name}' would take more bytes than 63 bits count",
                    status=WRONG_SIZE,
                    argument=k,
                )
                yield SizeLimit(self._axes(dims), bytes_of_static(type.dtype, type.shape), row)

    def _size_checks(self) -> Iterator[SizeRelation | SizeLimit]:
        """What a call checks of sizes, as `SizeChecks` does."""
        for number, stage in enumerate(self.stages):
            for constraint in stage.checks.constraints:
                try:
                    left, right = self._size(constraint.left), self._size(constraint.right)
                except KeyError:
                    continue  # of an op that nothing uses
                text = constraint.message or f"{constraint.condition} does not hold"
                parts: list[str | Shown] = [
                    f"error[{constraint.code}]: {text}\nexpected: {constraint.condition}\ngot: ",
                    Shown(GOT, INT),
                ]
                parts += [" and ", Shown(EXPECTED, INT)]
                parts += [f"\nrequired at {shown_place(constraint.place)}"] if constraint.place else []
                yield SizeRelation(constraint.kind, left, right, self.table.row(*parts, status=WRONG_SIZE), number)
            for value, fresh, dims, fixed in stage.checks.rows:
                type = self.ir.types[value]
                node = next(node for node in self.ir.nodes if value in node.results)
                assert isinstance(node, Node)
                about = f"{node.name}: its result has the shape {shown(type.shape)}, and "
                at = f"\nop '{node.name}' is staged at {shown_place(node.place)}" if node.place else ""
                for dim in fresh:
                    if isinstance(dim, SymbolicDim):
                        continue  # a size that is passed or computed, and checked
                    parts = [
                        f"error[EK0475]: {about}axis {type.shape.index(dim)} would have size ",
                        Shown(GOT, INT),
                        at,
                    ]
                    row = self.table.row(*parts, status=WRONG_SIZE)
                    yield SizeRelation("at_least", self._size(dim), DimNumber(0), row, number)
                row = self.table.row(
                    f"error[EK0476]: {about}it would take more bytes than 63 bits count{at}", status=WRONG_SIZE
                )
                yield SizeLimit(self._axes(dims), fixed, row, number)

    # *** memory ***

    def _pointers(self) -> tuple[tuple[tuple[str, int], ...], tuple[ExportTemporary, ...]]:
        plan = self.plan
        temps = []
        for stage in range(len(self.stages)):
            numbers = plan.temps_of(stage)
            known = all(isinstance(dim, StaticDim) for number in numbers for dim in plan.buffers[number].shape)
            offsets = plan.place({}, stage)[0] if known else {}
            for number in numbers:
                buffer = plan.buffers[number]
                axes = self._axes(buffer.shape)
                temps.append(
                    ExportTemporary(number, buffer.dtype, axes, buffer.first, buffer.last, stage, offsets.get(number))
                )
        order = {temp.pointer: k for k, temp in enumerate(temps)}
        pointers = []
        for number, buffer in enumerate(plan.buffers):
            kind, k = buffer.source
            if kind == "temp":
                k = order[number]
            elif kind == "constant":
                kind, k = self._weight(k, buffer.dtype)
            pointers.append((kind, k))
        return tuple(pointers), tuple(temps)

    def _weight(self, number: int, dtype: DType) -> tuple[str, int]:
        """The pointer of a constant."""
        node = self.ir.nodes[number]
        alignment = 1 if dtype.is_packed() else dtype.part.size_in_bytes
        assert isinstance(node, ConstantTensor | External)
        size = dtype.bytes_for(math.prod(int(dim) for dim in node.type.shape))
        if self.options.weights == PACKAGED and not (isinstance(node, ConstantTensor) and node.array.size == 1):
            return self._outside(GivenWeight(str(number), alignment, size)) if size else ("empty", 0)
        if isinstance(node, ConstantTensor):
            array: Any = pack(node.array) if dtype.is_packed() else node.array
            name = f"constant{number}"
        else:
            if self.options.weights == "given":
                return self._outside(GivenWeight(node.name, alignment, size)) if size else ("empty", 0)
            array, name = self.source.weights[number], node.name
        contiguous = np.ascontiguousarray(np.asarray(array))
        data = contiguous.reshape(-1).view(np.uint8)
        if not data.size:
            return "empty", 0
        if self.options.weights == "beside" and data.size >= MIN_APART:
            self.stored.append(StoredWeight(name, dtype, np.shape(array), data, array))
            return self._outside(GivenWeight(name, alignment, data.size))
        self.arrays.append(data)
        self.weights.append(ExportWeight(name, data.size))
        return "weight", len(self.weights) - 1

    def _outside(self, weight: GivenWeight) -> tuple[str, int]:
        """The pointer of a weight that is not in the file of the code."""
        self.given.append(weight)
        return "given", len(self.given) - 1
