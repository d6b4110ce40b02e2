"""Kernel instances -> typed program: binds each kernel to its tensors and evaluates it.

A group becomes one function. Its root kernel runs as written; the operands that other nodes of the group compute are
`Fused` tensors, and a root whose results go straight into an epilogue writes into an `Epilogue` tensor. Groups that are
equal but for the buffers they work on share one function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...dsl.contract.checks import SAFE, Checks, parse_checks
from ...dsl.contract.groups import Numbering
from ...dsl.contract.unit import (
    BufferSpec,
    EntrySpec,
    FromNode,
    GroupSpec,
    Literal,
    NodeSpec,
    Passed,
    Size,
    Slot,
)
from ...dsl.diagnostics.errors import CompileError, EinkornError, InternalError, joined
from ...dsl.diagnostics.places import is_shipped
from ...dsl.signature.schema import ContextArgument, Form, Role, TensorArgument
from ...dsl.types.dtype import INT, DType, SIMDType
from ..ir.program import NotFusible, PointerType, Program, ProgramFunction, Region, Site, Value
from ..targets import Target
from . import handlers  # noqa: F401  # fills the evaluator's tables
from .debug_values import beginning, note
from .evaluator import Evaluator, Point
from .exact_terms import as_element, check_comparisons
from .outputs import is_stored, never_stored
from .recovery import Cascade
from .target_refusals import is_host_code
from .values.compile_time import ContextValue, Frame, Poisoned
from .values.flow import Abandoned
from .values.index import BodyIndex, NeedComponents
from .values.tensors import (
    Demand,
    Epilogue,
    EpilogueOperand,
    Filled,
    Fused,
    KernelTensor,
    NotElementwise,
    Stored,
    Strided,
    Uniform,
)


def build_program(spec: EntrySpec, target: Target, *, notes: bool = False) -> Program:
    """The typed program of an entry; `notes` pass the values of variables to a debugger.

    Raises:
        CompileError: a mistake in a kernel, with its place.
        NotFusible: groups cannot be built.
    """
    kernels = tuple(node.kernel for group in spec.groups for node in group.nodes)
    program = Program(kernels=kernels, stages=spec.stages, traced=spec.traced, steps=spec.steps)
    known: dict[Any, int] = {}
    mistakes: list[EinkornError] = []
    apart: dict[int, NotFusible] = {}
    for number, group in enumerate(spec.groups):
        numbering = Numbering(spec, group)
        key = numbering.key if len(spec.groups) > 1 else None  # a digest of each kernel is in it
        if key not in known:
            known[key] = len(program.functions)
            builder = GroupBuilder(spec, group, numbering, target, program.sites)
            builder.evaluator.debugging = notes
            root = group.nodes[group.root].kernel.schema.name
            name = f"{re.sub('[^A-Za-z0-9_]', '_', root)}_{len(program.functions)}"
            try:
                program.functions.append(builder.build(name))
            except CompileError as error:  # the mistakes of all kernels are wanted
                mistakes.append(error)
            except NotFusible as error:
                apart[number] = error
                del known[key]  # each of them is wanted
        program.calls.append((known.get(key, -1), numbering.buffers, tuple(map(Slot, numbering.slots))))
    if mistakes:
        raise joined(mistakes)
    if apart:
        first = next(iter(apart.values()))
        raise NotFusible(first.message, list(apart)) from first
    return program


class GroupEvaluator:
    """Evaluates nodes of a group; `operand` provides their operands."""

    def __init__(self, nodes: tuple[NodeSpec, ...], target: Target, sites: list[Site], checks: Checks = SAFE) -> None:
        self.nodes = nodes
        self.evaluator = Evaluator(target, sites, checks)
        self.slots: dict[int, Value] = {}
        self.given: dict[tuple[int, int], EpilogueOperand] = {}

    def dims(self, shape: tuple[Size, ...]) -> tuple[Value, ...]:
        """A shape as Ints."""
        builder = self.evaluator.builder
        return tuple(self.slots[n.index] if isinstance(n, Slot) else builder.int_(n) for n in shape)

    def operand(self, node: int, number: int) -> KernelTensor:
        """The tensor that a node reads as its input `number`."""
        raise NotImplementedError

    def tensor_fields(
        self, node: int, argument: TensorArgument, shape: tuple[Size, ...], dtype: DType
    ) -> dict[str, Any]:
        return {
            "name": argument.name,
            "dtype": dtype,
            "dims": self.dims(shape),
            "role": argument.role,
            "fixed": fixed_sizes(argument, shape),
            "declared": argument.place,
            "annotation": str(argument),
        }

    def fused(self, operand: FromNode, argument: TensorArgument, node: int) -> KernelTensor:
        """An operand that is computed where it is read (or that is just being stored)."""
        given = self.given.get((operand.node, operand.output))
        if given is not None:
            return given
        dtype, shape = self.nodes[operand.node].outputs[operand.output]
        fields = self.tensor_fields(node, argument, shape, dtype)

        def element(index: BodyIndex) -> Value:
            return self.element(operand.node, operand.output, index)

        return Fused(element, **fields)

    def run(self, node: int, outputs: list[KernelTensor]) -> bool:
        """Evaluates a node's kernel with these output tensors; whether it ends, and not always by raising."""
        spec = self.nodes[node]
        kernel, schema = spec.kernel, spec.kernel.schema
        function = kernel.functions[0]
        env: dict[str, Any] = {name: Poisoned() for name in kernel.unknown} | {name: () for name, _ in schema.counts}
        scalars: list[tuple[str, KernelTensor]] = []
        inputs, results = iter(range(len(schema.inputs))), iter(outputs)
        for argument in schema.arguments:
            if isinstance(argument, ContextArgument):
                env[argument.name] = ContextValue()
                continue
            tensor = next(results) if argument.role is Role.OUTPUT else self.operand(node, next(inputs))
            self.evaluator.pruned |= "*" in argument.dims and not tensor.dims  # loops over its axes have no rounds
            if argument.group:
                env[argument.group] += (tensor,)
            elif argument.form is Form.SCALAR:
                scalars.append((argument.name, tensor))
            else:
                env[argument.name] = tensor
        env |= dict(spec.parameters)
        frame = Frame(
            env,
            kernel,
            function.file,
            dict(spec.dtypes),
            None,
            (node,),
            (function.syntax,),
        )
        evaluator = self.evaluator
        if kernel.mistakes:
            evaluator.collect(joined(kernel.mistakes))
        with self.about(spec):
            evaluator.builder.location = frame.location(function.syntax)
            # Read once, before all that the kernel does; of a GPU, what computes them is host code that reads elements.
            with evaluator.scope(level="parallel" if is_host_code(evaluator) else evaluator.level):
                for name, tensor in scalars:
                    env[name] = tensor.load(evaluator.builder, BodyIndex((), components=()))
            note(Point(evaluator, beginning(function.syntax), frame), env)
            with evaluator.scope(widened=[], compared=[]):
                kinds = evaluator.block(function.syntax.body, frame).kinds
                check_comparisons(evaluator)
            return bool(kinds)

    @contextmanager
    def about(self, spec: NodeSpec) -> Iterator[None]:
        """What the evaluator says and may do while it is in this kernel."""
        evaluator = self.evaluator
        values = [f"{name}={dtype}" for name, dtype in spec.dtypes]
        values += [f"{name}={value}" for name, value in spec.parameters]
        values.append(f"target={evaluator.target.name}")
        builder, schema = evaluator.builder, spec.kernel.schema
        instance = f"op '{schema.name}' [{', '.join(values)}]"
        # Each kernel has steps of its own, however many fuse.
        with (
            evaluator.scope(op=schema.name, instance=instance),
            builder.scope(fastmath=schema.fastmath, location=builder.location, steps=0),
        ):
            yield

    def element(self, node: int, output: int, index: BodyIndex) -> Value:
        """One element of a node's output, computed at the present point."""
        builder = self.evaluator.builder
        key = ("node element", node, index.key())
        values = builder.remembered(key)
        if values is None:
            outputs: list[KernelTensor] = []
            arguments = self.nodes[node].kernel.schema.outputs
            for argument, (dtype, shape) in zip(arguments, self.nodes[node].outputs, strict=True):
                outputs.append(Demand(index, **self.tensor_fields(node, argument, shape, dtype)))
            self.run(node, outputs)
            stored = [o.value for o in outputs if isinstance(o, Demand)]
            if any(value is None for value in stored):
                if self.evaluator.errors:
                    raise Cascade
                raise NotElementwise
            values = [as_element(self.evaluator, value) for value in stored if value is not None]
            builder.remember(key, values)
        result: Value = values[output]
        return result


class GroupBuilder(GroupEvaluator):
    """Builds the function of one group."""

    def __init__(
        self, spec: EntrySpec, group: GroupSpec, numbering: Numbering, target: Target, sites: list[Site]
    ) -> None:
        super().__init__(group.nodes, target, sites, parse_checks(spec.checks))
        self.buffers: tuple[BufferSpec, ...] = spec.buffers
        self.group = group
        self.numbering = numbering
        self.pointers = {b: Value(PointerType(spec.buffers[b].dtype), name=f"b{b}") for b in numbering.buffers}
        self.slots = {s: self.evaluator.builder.counter(Value(INT, name=f"d{s}")) for s in numbering.slots}
        self.passed = [Value(INT, name=f"n{number}") for number in range(group.passed)]
        self.numbers: dict[int, Value] = {}
        self.outputs = {(s.node, s.output): s.buffer for s in group.stores}

    def build(self, name: str) -> ProgramFunction:
        """Evaluates the root (with all that is fused with it) and returns the finished function."""
        region = Region()
        ends = False
        with self.evaluator.builder.inside(region):
            self.read_numbers()
            try:
                ends = self.run(self.group.root, self.root_outputs())
            except (Cascade, Abandoned):
                if not self.evaluator.errors:
                    raise InternalError("an error was found but not recorded") from None
            except (NeedComponents, NotElementwise) as error:
                raise NotFusible(f"these kernels do not fuse: {type(error).__name__}") from error
            except Exception:
                if not self.evaluator.errors:  # next to a mistake, what fails may fail because of it
                    raise
            self.evaluator.builder.end()
        self.evaluator.raise_errors()
        if ends and not self.evaluator.pruned:
            self.check_stored(region)
        op = self.group.nodes[self.group.root].kernel.schema.name
        params = [*self.pointers.values(), *self.slots.values(), *self.passed]
        builder = self.evaluator.builder
        return ProgramFunction(name, params, region, op, len(self.group.nodes) > 1, builder.bounds, names=builder.names)

    def read_numbers(self) -> None:
        """Gives the numbers that a call passes their dtypes, once, in front of all loops."""
        builder = self.evaluator.builder
        for node in self.group.nodes:
            for operand in node.inputs:
                if isinstance(operand, Passed):
                    value = self.passed[operand.number]
                    if operand.dtype is not INT.dtype:
                        word = builder.one("cast", [value], SIMDType(DType.int32))
                        value = builder.one("bitcast", [word], SIMDType(operand.dtype))
                    self.numbers[operand.number] = value

    def check_stored(self, region: Region) -> None:
        """Refuses a root that stores nothing into one of its outputs.

        Raises:
            CompileError: EK0225.
        """
        root = self.nodes[self.group.root]
        goes_on = [] if self.group.epilogue is None else [s.buffer for s in self.group.stores]
        mistakes: list[EinkornError] = []
        for number, (argument, (_, shape)) in enumerate(zip(root.kernel.schema.outputs, root.outputs, strict=True)):
            own = self.outputs.get((self.group.root, number))
            buffers = goes_on if own is None else [own]
            if argument.place is not None and is_shipped(argument.place.file):
                continue  # what `ops.buffer_create` makes is written later
            if 0 not in shape and not any(is_stored(region, self.pointers[buffer]) for buffer in buffers):
                with self.about(root):
                    mistakes.append(never_stored(self.evaluator, argument, root.kernel))
        if mistakes:
            raise joined(mistakes)

    def operand(self, node: int, number: int) -> KernelTensor:
        spec = self.nodes[node]
        operand, argument = spec.inputs[number], spec.kernel.schema.inputs[number]
        if isinstance(operand, FromNode):
            return self.fused(operand, argument, node)
        if isinstance(operand, Literal):
            return Filled(operand.value, **self.tensor_fields(node, argument, operand.shape, operand.dtype))
        if isinstance(operand, Passed):
            fields = self.tensor_fields(node, argument, operand.shape, operand.dtype)
            return Uniform(self.numbers[operand.number], **fields)
        buffer = self.buffers[operand.buffer]
        fields = self.tensor_fields(node, argument, operand.shape, buffer.dtype)
        if buffer.strides is not None:
            return Strided(self.dims(buffer.strides), self.pointers[operand.buffer], **fields)
        return Stored(self.pointers[operand.buffer], **fields)

    def stored(self, node: int, output: int) -> Stored:
        """The buffer that an output goes to."""
        argument = self.nodes[node].kernel.schema.outputs[output]
        dtype, shape = self.nodes[node].outputs[output]
        pointer = self.pointers[self.outputs[node, output]]
        return Stored(pointer, **self.tensor_fields(node, argument, shape, dtype))

    def root_outputs(self) -> list[KernelTensor]:
        root = self.group.root
        out: list[KernelTensor] = []
        for number, argument in enumerate(self.nodes[root].kernel.schema.outputs):
            dtype, shape = self.nodes[root].outputs[number]
            if self.group.epilogue is not None and (root, number) not in self.outputs:
                fields = self.tensor_fields(root, argument, shape, dtype)
                out.append(Epilogue(self.consumer(number, fields), **fields))
            else:
                out.append(self.stored(root, number))
        return out

    def consumer(self, output: int, fields: dict[str, object]) -> Callable[[BodyIndex, Value], None]:
        """What is done with each element that the root stores: the epilogue, then its own stores."""
        root, epilogue = self.group.root, self.group.epilogue
        assert epilogue is not None
        targets = [self.stored(epilogue, n) for n in range(len(self.nodes[epilogue].outputs))]

        def consume(index: BodyIndex, value: Value) -> None:
            with self.evaluator.builder.inside(self.evaluator.builder.region):  # a memo of its own for every store
                self.given[root, output] = EpilogueOperand(index, as_element(self.evaluator, value), **fields)
                for move in self.group.moves:
                    index = self.move(move, index)
                for number, target in enumerate(targets):
                    target.store(self.evaluator.builder, index, self.given_or_computed(epilogue, number, index))
                self.given.clear()

        return consume

    def given_or_computed(self, node: int, output: int, index: BodyIndex) -> Value:
        """One element of a node in an epilogue."""
        given = self.given.get((node, output))
        return self.element(node, output, index) if given is None else given.value

    def move(self, node: int, index: BodyIndex) -> BodyIndex:
        """Gives an element to the other side of a reshape or permute; its index there."""
        spec, builder = self.nodes[node], self.evaluator.builder
        (source,), (dtype, shape) = spec.inputs, spec.outputs[0]
        assert isinstance(source, FromNode)
        value = self.given_or_computed(source.node, source.output, index)
        fields = self.tensor_fields(node, spec.kernel.schema.outputs[0], shape, dtype)
        if spec.kernel.schema.move == "permute":
            parts, order = index.components(builder), dict(spec.parameters)["order"]
            assert isinstance(order, tuple)
            moved = BodyIndex(fields["dims"], components=tuple(parts[axis] for axis in order))
        else:
            moved = BodyIndex(fields["dims"], linear=index.position(builder), divisible=True)
        self.given[node, 0] = EpilogueOperand(moved, value, **fields)
        return moved


def fixed_sizes(argument: TensorArgument, shape: tuple[Size, ...]) -> tuple[int | None, ...]:
    """The sizes that the signature states as numbers: these are compile-time values in the kernel."""
    words = argument.dims.split()
    if len(words) != len(shape):
        return (None,) * len(shape)
    return tuple(int(w) if w.isdecimal() else None for w in words)
