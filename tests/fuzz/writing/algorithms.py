"""Ops whose loops are those of `einkorn.stdlib`: reductions, scans, sorting, stencils, with monoids of both kinds."""

from __future__ import annotations

from collections.abc import Callable

from einkorn.dsl.types.dtype import DType

from .base import DTYPES, name_of
from .kernels import Op
from .signatures import Signatures

NUMBERS = tuple(dtype for dtype in DTYPES if dtype is not DType.bool)
FLOATS = tuple(dtype for dtype in DTYPES if dtype.is_float())
ROWS = (
    *((3, 5), (2, 33), (4, 1), (1, 200), (5, 70), (0, 3), (3, 0), (2, 3, 4), (1, 4100), (17,), (300, 2), (1, 20000)),
    *((2, 3, 1, 5), (2, 2, 2, 1, 3), (1, 0, 2, 3), (3, 1, 2, 33), (2, 1, 3, 2, 2)),
)


class Algorithms(Signatures):
    """Ops that are calls of the standard library."""

    def ways_to_loop(self) -> list[Callable[[str], Op]]:
        ways = super().ways_to_loop()
        return [*ways, self.rows, self.rows, self.whole, self.scanned, self.ordered, self.first_ones, self.stencilled]

    def library(self, *names: str) -> None:
        for name in names:
            self.prologue[name] = f"from einkorn.stdlib import {name}\n"

    def plain(self, name: str, shape: tuple[int, ...], dtype: DType, outputs: list[tuple[DType, str]]) -> Op:
        """An op with one tensor `x` of this shape to go over, and outputs of dims of their own."""
        op = Op(name, shape, " ".join("abcde"[: len(shape)]))
        if len(shape) > 3:
            self.use("library above rank 3")
        self.scope = self.scope.copy(vars={}, tensors={}, tables={}, stores={}, pointers={}, objects={}, sizes=())
        for k, (kind, dims) in enumerate(outputs):
            op.outputs.append((f"out{k}", kind))
            op.signature.append(f"out{k}: OutputTensor[{name_of(kind)}, '{dims}']")
        self.argument(op, "x", dtype, op.dims, shape)
        return op

    def monoid_for(self, dtype: DType, *, scalar: bool = False) -> tuple[str, list[DType]]:
        """A monoid over these elements, and the types of the parts of its value."""
        if self.chance(35):
            name, result = self.monoid(dtype)
            return name, [result]
        names = ["Any", "All"]
        if dtype is not DType.bool:
            names = ["Sum", "Max", "Min", "Product", "ArgMax", "ArgMin", *names]
        if dtype.is_float():
            names += ["LogSumExp"] + ([] if scalar else ["Welford"])
        name = self.pick(names)
        self.library(name)
        results = {"Any": DType.bool, "All": DType.bool, "ArgMax": DType.int64, "ArgMin": DType.int64}
        return name, [results.get(name, dtype)] * (2 if name == "Welford" else 1)

    def of(self, dtype: DType) -> tuple[str, DType]:
        """A function of an element for `of=`, and the type of what it gives."""
        if self.chance(50):
            return "", dtype
        self.use("function of elements")
        wanted = self.pick([dtype, *NUMBERS]) if self.chance(40) else dtype
        return f", of=lambda v: {self.cast_to(self.simple('v', dtype), dtype, wanted)}", wanted

    def result_type(self) -> DType:
        return DType.uint64 if self.chance(40) else self.pick(self.dtypes)

    def axis_of(self, shape: tuple[int, ...]) -> int:
        return self.pick([-1, *range(len(shape))])

    def without(self, shape: tuple[int, ...], axis: int) -> tuple[str, tuple[int, ...]]:
        """The dims that stay when an axis goes."""
        axis %= len(shape)
        letters = "abcde"[: len(shape)]
        return letters[:axis] + letters[axis + 1 :], shape[:axis] + shape[axis + 1 :]

    def rows(self, name: str) -> Op:
        """`rowwise`, by one monoid or two in one pass."""
        shape = self.pick(ROWS)
        axis = self.axis_of(shape)
        dtype = self.pick(self.dtypes)
        of, given = self.of(dtype)
        monoids = [self.monoid_for(given) for _ in range(2 if self.chance(45) else 1)]
        types = [kind for _, kinds in monoids for kind in kinds]
        letters, _ = self.without(shape, axis)
        op = self.plain(name, shape, dtype, [(self.result_type(), " ".join(letters)) for _ in types])
        x = op.inputs[0][0]
        if dtype is not DType.bool and self.chance(40):
            # A second tensor: of the same shape, or along the axis alone.
            self.use("several tensors")
            along = self.chance(50)
            dims = "abcde"[axis % len(shape)] if along else op.dims
            second = self.argument(op, "x", dtype, dims, (shape[axis],) if along else shape)
            x = f"({x}, {second})"
            text = f"{self.simple('v', dtype)} {self.pick(('*', '+'))} w"
            of = f", of=lambda v, w: {self.cast_to(text, dtype, given)}"
        self.library("rowwise")
        self.use("rowwise")
        self.head(op, once=True)
        names = [f"m{k}" for k in range(len(monoids))]
        self.line(1, f"def body(row, {', '.join(names)}):")
        with self.inner():
            for k, (_, kinds) in zip(names, monoids, strict=True):
                for part, kind in enumerate(kinds):
                    self.fix(k if len(kinds) == 1 else f"{k}[{part}]", (kind, 1))
            self.begin(2, [kind for _, kind in op.outputs])
            self.statements(2, 2)
            for out, kind in op.outputs:
                self.line(2, f"{out}[row] = {self.final(2, (kind, 1))}")
        self.line(0, "")
        group = monoids[0][0] if len(monoids) == 1 else f"({', '.join(m for m, _ in monoids)})"
        if len(monoids) > 1:
            self.use("several monoids")
        along = f", axis={axis}" if axis != -1 or self.chance(20) else ""
        self.line(1, f"rowwise({x}, {group}, body{along}{of})")
        return op

    def whole(self, name: str) -> Op:
        """`reduce` of a whole tensor, or of each of its rows in a loop."""
        shape = self.pick([s for s in ROWS if len(s) == 2])
        dtype = self.pick(self.dtypes)
        of, given = self.of(dtype)
        monoid, (kind, *_) = self.monoid_for(given, scalar=True)
        by_row = self.chance(50)
        op = self.plain(name, shape, dtype, [(self.pick(self.dtypes), "a" if by_row else "1")])
        self.library("reduce")
        self.use("reduce")
        self.head(op, once=True)
        x = op.inputs[0][0]
        with self.inner():
            if by_row:
                self.use("view")
                part = self.pick((":", "::2", "::-1", "1:"))
                if shape[1] == 0:
                    part = ":"
                self.line(1, "def body(i):")
                self.line(2, f"m = reduce({x}[i, {part}], {monoid}{of})")
                self.fix("m", (kind, 1))
                self.line(2, f"out0[i] = {self.expression((op.outputs[0][1], 1))}")
                self.line(0, "")
                self.line(1, f"parallel_for({x}.dim(0), body)")
            else:
                self.line(1, f"m = reduce({x}, {monoid}{of})")
                self.fix("m", (kind, 1))
                self.line(1, f"out0[0] = {self.expression((op.outputs[0][1], 1))}")
        return op

    def scanned(self, name: str) -> Op:
        shape = self.pick(ROWS)
        dtype = self.pick(self.dtypes)
        of, given = self.of(dtype)
        monoid, kinds = self.monoid_for(given)
        op = self.plain(name, shape, dtype, [(kind, " ".join("abcde"[: len(shape)])) for kind in kinds])
        self.library("scan")
        self.use("scan")
        self.head(op)
        axis = self.axis_of(shape)
        more = (f", axis={axis}" if axis != -1 else "") + (", exclusive=True" if self.chance(30) else "")
        outs = "out0" if len(kinds) == 1 else "(out0, out1)"
        self.line(1, f"scan({outs}, {op.inputs[0][0]}, {monoid}{more}{of})")
        return op

    def key(self, dtype: DType) -> str:
        """Arguments that say the order."""
        key = f", key=lambda v: {self.simple('v', dtype)}" if self.chance(30) else ""
        return key + (f", descending={self.pick(('True', 'False'))}" if self.chance(40) else "")

    def ordered(self, name: str) -> Op:
        """`sort` or `argsort`."""
        shape = self.pick([s for s in ROWS if max(s, default=0) <= 300])
        dtype = self.pick(self.dtypes)
        places = self.chance(40)
        kind = self.pick((DType.int64, DType.int32)) if places else dtype
        op = self.plain(name, shape, dtype, [(kind, " ".join("abcde"[: len(shape)]))])
        function = "argsort" if places else "sort"
        self.library(function)
        self.use("sort")
        self.head(op)
        axis = self.axis_of(shape)
        more = (f", axis={axis}" if axis != -1 else "") + self.key(dtype)
        limit = 64 if shape[axis] <= 64 else 512
        self.line(1, f"{function}(out0, {op.inputs[0][0]}{more}, limit={limit})")
        return op

    def first_ones(self, name: str) -> Op:
        """`top_k`, with values and places, or one of these."""
        shape = self.pick([s for s in ROWS if len(s) > 1 and s[-1] > 0])
        dtype = self.pick(self.dtypes)
        k = self.number(1, min(7, shape[-1]))
        dims = " ".join([*"abcd"[: len(shape) - 1], str(k)])
        op = self.plain(name, shape, dtype, [(dtype, dims), (DType.int64, dims)])
        self.library("top_k")
        self.use("top_k")
        self.head(op)
        x, more = op.inputs[0][0], self.key(dtype)
        if self.chance(70):
            self.line(1, f"top_k(out0, out1, {x}, {k}{more})")
        else:
            self.line(1, f"top_k(out0, None, {x}, {k}{more})")
            self.line(1, f"top_k(None, out1, {x}, {k})")
        return op

    def stencilled(self, name: str) -> Op:
        """`stencil` over one or two axes."""
        shape = self.pick(((2, 33), (5, 7), (3, 4, 9), (40,), (1, 6), (2, 1, 3, 7), (2, 2, 1, 4, 5)))
        dtype = self.pick(self.dtypes)
        axes = self.number(1, min(2, len(shape)))
        border = self.pick(("constant", "edge", "wrap", "reflect"))
        # What lies beyond a border is a neighbour that there is.
        reach = [self.number(0, min(2, (n - 1) // 2)) for n in shape[-axes:]]
        letters = " ".join("abcde"[: len(shape)])
        op = self.plain(name, shape, dtype, [(self.result_type(), letters)])
        self.library("stencil")
        self.use("stencil")
        self.head(op, once=True)
        self.line(1, "def body(near, i):")
        with self.inner():
            for _ in range(self.number(1, 3)):
                at = ", ".join(str(self.number(-r, r)) for r in reach)
                self.fix(f"near({at})", (dtype, 1))
            self.begin(2, [op.outputs[0][1]])
            self.statements(2, 2)
            self.line(2, f"return {self.final(2, (op.outputs[0][1], 1))}")
        self.line(0, "")
        more = f", value={self.literal((dtype, 1))}" if border == "constant" and self.chance(50) else ""
        reaches = f"({', '.join(map(str, reach))},)"
        self.line(1, f"stencil(out0, {op.inputs[0][0]}, body, reach={reaches}, border='{border}'{more})")
        return op
