"""Ops whose loops the program writes: `foreach`, `parallel_for`, loops over vectors, atomics that all threads use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from einkorn.dsl.types.dtype import DType, scalar_name

from .base import DTYPES, INT, STORAGE, TABLE, name_of
from .functions import Functions

SHAPES = ((5,), (33,), (3, 5), (1,), (2, 1, 7), (), (0,), (2, 3, 1, 2), (0, 3), (2, 0, 3), (4, 130), (1500,))
LENGTHS = (33, 16, 5, 70, 1, 0, 300)
INTEGERS = tuple(dtype for dtype in DTYPES if dtype.is_integral())


@dataclass
class Op:
    """An op while it is written: its arguments in order, and what its inputs are like.

    Attributes:
        outputs, inputs: names and dtypes; the inputs are of shape `shape`, and other arguments are not among them.
        given: dtype, shape and name of each input, in order; a variadic argument is there once for each tensor.
    """

    name: str
    shape: tuple[int, ...]
    dims: str
    outputs: list[tuple[str, DType]] = field(default_factory=list)
    inputs: list[tuple[str, DType]] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    given: list[tuple[DType, tuple[int, ...], str]] = field(default_factory=list)


class Kernels(Functions):
    """Ops with loops of their own."""

    # signatures

    def op(self, name: str, shape: tuple[int, ...], outputs: int, *, tables: int = 2, dims: str = "") -> Op:
        """A signature, and the scope that it makes."""
        rank = len(shape)
        dims = dims or ("*s" if rank == 0 or self.chance(30) else " ".join("abcd"[:rank]))
        op = Op(name, shape, dims)
        for k in range(outputs):
            dtype = self.storage_type(self.pick(STORAGE if self.chance(15) else self.dtypes))
            dtype = DType.uint64 if self.chance(40) else dtype
            op.outputs.append((f"out{k}", dtype))
            op.signature.append(f"out{k}: OutputTensor[{name_of(dtype)}, '{dims}']")
        scope = self.scope = self.scope.copy(vars={}, tensors={}, tables={}, stores={}, pointers={}, index="i")
        for _ in range(self.number(1, 3)):
            dtype = self.storage_type(self.pick(STORAGE if self.chance(20) else self.dtypes))
            scope.tensors[self.argument(op, "x", dtype, dims, shape)] = dtype
        if rank and self.chance(8):
            self._variadic(op)
        for _ in range(self.number(0, tables)):
            dtype = self.storage_type(self.pick(STORAGE if self.chance(10) else self.dtypes))
            scope.tables[self.argument(op, "t", dtype, str(TABLE), (TABLE,))] = dtype
        if self.chance(15):
            self._scalar(op)
        if self.chance(15):
            self.use("parameter")
            parameter = self.fresh("n")
            op.keywords.append(f"{parameter}: int = {self.number(0, 9)}")
            self.fix(f"Int({parameter})", INT)
        names = [name for name, _ in op.outputs[:1]] + list(self.scope.tensors)[:2]
        self.scope = self.scope.copy(sizes=self.size_vars(names, rank))
        return op

    def argument(self, op: Op, stem: str, dtype: DType, dims: str, shape: tuple[int, ...]) -> str:
        """Another input; gives its name."""
        name = self.fresh(stem)
        op.signature.append(f"{name}: InputTensor[{name_of(dtype)}, '{dims}']")
        op.given.append((dtype, shape, name))
        if stem == "x":
            op.inputs.append((name, dtype))
        return name

    def _variadic(self, op: Op) -> None:
        """Two tensors of one argument."""
        self.use("variadic argument")
        name, dtype = self.fresh("xs"), self.pick(self.dtypes)
        op.signature.append(f"{name}: VariadicTensors[{name_of(dtype)}, '{op.dims}', 2]")
        for k in range(2):
            op.given.append((dtype, op.shape, name))
            self.scope.tensors[f"{name}[{k}]"] = dtype

    def _scalar(self, op: Op) -> None:
        """A number that is known when the op runs."""
        self.use("scalar argument")
        dtype = self.pick(self.dtypes)
        name = self.fresh("n")
        op.signature.append(f"{name}: {scalar_name(dtype)}")
        op.given.append((dtype, (), name))
        self.fix(name, (dtype, 1))

    def head(self, op: Op, *, once: bool = False, promises: str = "") -> None:
        """The lines before the body. `once` says that every element of a result is stored once, and none is read."""
        arguments = ", ".join(op.signature + (["*", *op.keywords] if op.keywords else []))
        if not self.alone and self.chance(70):
            self.use("promises")
            names = [name for _, _, name in op.given if name.startswith(("x", "t")) and not name.startswith("xs")]
            reads = ", ".join(f'"{name}": 100000' for name in names)  # loops are few, and their rounds
            promises += f", reads={{{reads}}}" + ", writes_once=True" * once
        self.line(0, f"@register('{op.name}'{promises})")
        self.line(0, f"def {op.name}({arguments}):")

    # kernels

    def ways_to_loop(self) -> list[Callable[[str], Op]]:
        """The kernels that there may be, the simplest first; others add to it."""
        ways = [self.elementwise, self.elementwise, self.each, self.each, self.each, self.vectors, self.vectors]
        return [
            *ways,
            self.vectorized,
            self.masked_tail,
            self.chunks,
            self.tiles,
            self.kept,
            self.counted,
            self.in_place,
            self.in_place,
            self.grid,
        ]

    def elementwise(self, name: str) -> Op:
        """One `foreach` over all outputs."""
        op = self.op(name, self.pick(SHAPES), self.number(1, 2))
        self.use("foreach")
        self.head(op)
        dtypes = [dtype for _, dtype in op.outputs]
        self.line(1, "def body(i):")
        place = "{}.position(*i)" if op.shape else ""
        with self.inner(parallel=True, position=place):
            if self.chance(25):
                self.storage(2)
            self.begin(2, dtypes)
            self.statements(2, result=(dtypes[0], 1) if len(dtypes) == 1 else None)
            self.line(2, f"return {self.returned(2, dtypes)}")
        self.line(0, "")
        outs = [f"out{k}" for k in range(len(dtypes))]
        self.line(1, f"foreach({outs[0] if len(outs) == 1 else '(' + ', '.join(outs) + ')'}, body)")
        return op

    def each(self, name: str) -> Op:
        """`parallel_for` over the elements, with storage of the thread's own."""
        op = self.op(name, (self.pick(LENGTHS),), self.number(1, 2), dims="a")
        self.use("parallel_for")
        self.head(op, once=True)
        self.line(1, "def body(i):")
        self.round(op, 2)
        self.line(0, "")
        self.line(1, f"parallel_for(out0.dim(0), body{self.pick(('', ', grain=4'))})")
        return op

    def round(self, op: Op, indent: int, index: str = "i") -> None:
        """What one round of a loop does: statements, and a store into each output."""
        with self.inner(index=index, position=f"{{}}.position({index})"):
            if self.chance(80):
                self.storage(indent)
                for _ in range(self.number(0, 2)):
                    self._store(indent, 0, None)
            self.begin(indent, [dtype for _, dtype in op.outputs])
            self.statements(indent)
            for k, dtype in op.outputs:
                self.line(indent, f"{k}[{index}] = {self.final(indent, (dtype, 1))}")

    def chunks(self, name: str) -> Op:
        """`parallel_chunks`, with something that goes from one element to the next within what is written alone."""
        op = self.op(name, (self.pick(LENGTHS),), 1, dims="a")
        self.use("parallel_chunks")
        self.head(op, once=True)
        self.line(1, "def some(low, high):")
        self.line(2, "for i in range(low, high):")
        self.round(op, 3)
        self.line(0, "")
        self.line(1, f"parallel_chunks(out0.dim(0), some{self.pick(('', ', grain=4'))})")
        return op

    def tiles(self, name: str) -> Op:
        op = self.op(name, (self.pick(LENGTHS),), 1, dims="a")
        self.use("tile")
        self.head(op, once=True)
        self.line(1, "def some(first, size):")
        self.line(2, "for k in range(size):")
        self.line(3, "i = first + k")
        with self.inner():
            self.fix("Int(size)", INT)
            self.round(op, 3)
        self.line(0, "")
        self.line(1, f"tile(out0.dim(0), {self.pick(('(4, 1)', '(8, 2, 1)', '(16, 4, 1)'))}, some)")
        return op

    # vectors

    def vectors(self, name: str) -> Op:
        """Whole vectors in a loop, and the rest element by element."""
        width = self.pick((4, 2, 8, 16))
        op = self.op(name, (self.pick(LENGTHS),), self.number(1, 2), dims="a")
        self.use("vector loop")
        self.head(op, once=True)
        self.line(1, "n = out0.dim(0)")
        self.line(1, f"for i in range(0, n - {width - 1}, {width}):")
        self.vector_round(op, 2, width)
        self.line(1, f"for i in range(n // {width} * {width}, n):")
        with self.inner():
            for k, dtype in op.outputs:
                self.line(2, f"{k}[i] = {self.expression((dtype, 1))}")
        return op

    def vector_round(self, op: Op, indent: int, width: int) -> None:
        """Statements over vectors of one width, and a store of one into each output."""
        with self.inner(loads=width):
            self.begin(indent, [dtype for _, dtype in op.outputs])
            for _ in range(self.number(1, 2)):
                type = (self.pick(self.dtypes), width)
                made = self.fresh("v")
                self.line(indent, f"{made} = {self.expression(type)}")
                self.scope.vars[made] = type
            self.statements(indent, 3)
            for k, dtype in op.outputs:
                value = self.final(indent, (dtype, width))
                self.line(indent, f"{k}.store({value}, i{self.aligned(k, dtype, width)})")

    def masked_tail(self, name: str) -> Op:
        """Whole vectors alone, the last of them with a mask."""
        width = self.pick((4, 2, 8, 16))
        op = self.op(name, (self.pick(LENGTHS),), 1, dims="a")
        self.use("masked tail")
        self.head(op, once=True)
        self.line(1, "n = out0.dim(0)")
        self.line(1, f"for i in range(0, n, {width}):")
        self.line(2, f"inside = iota(int64, {width}) < n - i")
        self._with_mask(op, width, "inside", width)
        return op

    def _with_mask(self, op: Op, width: int, mask: str, step: int = 1) -> None:
        """Masked loads of all inputs, statements, and masked stores; the index is a multiple of `step`."""
        self.use("masked load", "masked store", "mask")
        tensors = dict(self.scope.tensors)
        with self.inner(tensors={}):
            for tensor, dtype in tensors.items():
                made = self.fresh("v")
                other = f", other={self.literal((dtype, width))}" if self.chance(50) else ""
                more = other + self.aligned(tensor, dtype, step)
                self.line(2, f"{made} = {tensor}.load(i, width={width}, mask={mask}{more})")
                self.scope.vars[made] = (dtype, width)
            self.fix(mask, (DType.bool, width))
            self.begin(2, [dtype for _, dtype in op.outputs])
            self.statements(2, 3)
            for k, dtype in op.outputs:
                value, more = self.final(2, (dtype, width)), self.aligned(k, dtype, step)
                self.line(2, f"{k}.store({value}, i, mask={mask}{more})")

    def vectorized(self, name: str) -> Op:
        """`vectorize`, whose body is compiled for whole vectors and for single elements."""
        width = self.pick((4, 2, 8, 16))
        op = self.op(name, (self.pick(LENGTHS),), 1, dims="a")
        self.head(op, once=True)
        if self.chance(50):
            self.use("masked vectorize")
            self.line(1, "def lanes(i, width, mask):")
            self._with_mask(op, width, "mask")
            self.line(1, f"vectorize(out0.dim(0), {width}, lanes, masked=True)")
            return op
        self.use("vectorize")
        self.line(1, "def lanes(i, width):")
        with self.inner():
            tensor, dtype = self.pick(
                [t for t in self.scope.tensors.items() if not t[1].is_storage()] or [("", DType.bool)]
            )
            k, wanted = op.outputs[0]
            source = f"{tensor}.load(i, width=width)" if tensor else "(iota(int32, width) < 1)"
            self.line(2, f"v = {source}")
            self.line(2, f"{k}.store({self.cast_to(self.simple('v', dtype), dtype, wanted)}, i)")
        self.line(1, f"vectorize(out0.dim(0), {width}, lanes)")
        return op

    # results that depend on all elements

    def kept(self, name: str) -> Op:
        """As many elements as a test says, by a shape function."""
        op = self.op(name, (self.pick(LENGTHS),), 1, tables=1, dims="a")
        self.use("computed shape")
        dtype = op.outputs[0][1]
        op.signature[0] = f"out0: OutputTensor[{name_of(dtype)}, 'kept']"
        op.keywords = []
        arguments = ", ".join(text.split(":")[0] for text in op.signature[1:])
        sizes = tuple(size for size in self.scope.sizes if not size.startswith(("out0", "len(out0")))
        first = next(iter(self.scope.tensors))
        allowed = {n: t for n, t in self.scope.vars.items() if not n.startswith("Int(")}
        self.scope = self.scope.copy(sizes=sizes, vars=allowed)
        self.line(0, f"def wanted(i, {arguments}):")
        with self.inner(functions={n: f for n, f in self.scope.functions.items() if n.startswith("h")}):
            self.statements(1, 2)
            self.line(1, f"return {self.condition(3)}")
        self.line(0, "")
        self.line(0, "")
        self.head(op)
        self.line(1, "at = Int(0)")
        self.line(1, f"for i in range({first}.dim(0)):")
        self.line(2, f"if wanted(i, {arguments}):")
        self.line(3, f"out0[at] = {self.expression((dtype, 1))}")
        self.line(3, "at += 1")
        self.line(0, "")
        self.line(0, "")
        self.line(0, f"@{name}.shape")
        self.line(0, f"def {name}_shape({arguments}):")
        self.line(1, "count = Int(0)")
        self.line(1, f"for i in range({first}.dim(0)):")
        self.line(2, f"count += 1 if wanted(i, {arguments}) else 0")
        self.line(1, "return count")
        return op

    def counted(self, name: str) -> Op:
        """Atomics of all threads on one output, with results that no order changes."""
        op = self.op(name, (self.pick((70, 5, 33)),), 1, dims="a")
        self.use("shared atomics")
        dtype = self.one_of(INTEGERS, (DType.int32, DType.uint8))
        op.signature[0] = f"out0: OutputTensor[{name_of(dtype)}, '{TABLE}']"
        op.outputs[0] = ("out0", dtype)
        self.head(op)
        self.line(1, f"foreach(out0, lambda i: {self.literal((dtype, 1))})")
        self.line(0, "")
        self.line(1, "def body(i):")
        with self.inner():
            self.statements(2, 3)
            kind = self.pick(("add", "sub", "min", "max", "and_", "or_", "xor"))
            self.line(2, f"atomic.{kind}(out0, {self.place(2)}, {self.expression((dtype, 1))})")
        self.line(0, "")
        self.line(1, f"parallel_for({op.inputs[0][0]}.dim(0), body)")
        return op

    def in_place(self, name: str) -> Op:
        """An op that changes one of its inputs, and has no other result."""
        op = self.op(name, (self.pick(LENGTHS),), 1, dims="a")
        self.use("changed in place")
        kind = op.outputs.pop()[1]
        changed = self.fresh("y")
        op.signature = [f"{changed}: MutableInputTensor[{name_of(kind)}, 'a']", *op.signature[1:]]
        op.given.insert(0, (kind, op.shape, changed))
        sizes = tuple(size for size in self.scope.sizes if "out0" not in size)
        self.scope = self.scope.copy(tensors={changed: kind, **self.scope.tensors}, sizes=sizes)
        self.head(op)
        self.line(1, "def body(i):")
        with self.inner():
            for _ in range(self.number(1, 2)):
                self.statements(2, 2)
                self.line(2, f"{changed}[i] = {self.expression((kind, 1))}")
        self.line(0, "")
        self.line(1, f"parallel_for({changed}.dim(0), body)")
        return op

    def grid(self, name: str) -> Op:
        """A function for every thread of a grid."""
        op = self.op(name, (self.pick(LENGTHS),), 1, dims="a")
        self.use("grid")
        op.keywords = []
        names = dict.fromkeys(["out0", *(given for _, _, given in op.given)])
        allowed = {n: t for n, t in self.scope.vars.items() if not n.startswith("Int(")}
        self.line(0, f"def thread({', '.join(names)}, n):")
        self.line(1, "i = gpu.global_idx.x")
        self.line(1, "if i < n:")
        with self.inner(vars=allowed, functions={n: f for n, f in self.scope.functions.items() if n.startswith("h")}):
            self.round(op, 2)
        self.line(0, "")
        self.line(0, "")
        op.signature.append("ctx: DeviceContext")
        self.head(op, once=True)
        self.line(1, "n = out0.dim(0)")
        self.line(1, f"ctx.launch(thread, {', '.join(names)}, n, grid=(ceildiv(n, 16),), block=(16,))")
        return op
