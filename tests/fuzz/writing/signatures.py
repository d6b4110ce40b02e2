"""What signatures leave open or allow: type variables in place of dtypes, and liberties with floating point."""

from __future__ import annotations

import re
from collections.abc import Callable

from einkorn.dsl.types.dtype import DType, scalar_name

from .base import TABLE, name_of
from .kernels import LENGTHS, Kernels, Op


class Signatures(Kernels):
    """Ops whose signatures say more, or less."""

    def ways_to_loop(self) -> list[Callable[[str], Op]]:
        return [*super().ways_to_loop(), self.at_liberty]

    # type variables

    def opened(self, op: Op, first: int) -> None:
        """At times a type variable in place of a dtype, in a signature and in the body; its text begins at a line."""
        if not self.chance(25):
            return
        self.use("type variable")
        dtype = self.pick(list(dict.fromkeys(kind for kind, _, _ in op.given)))
        variable = self.type_variable(dtype)
        head = next(k for k in range(first, len(self.lines)) if self.lines[k].startswith(f"def {op.name}("))
        source = next(name for kind, _, name in op.given if kind is dtype)
        for text in op.signature:
            argument = text.split(":")[0]
            if argument == source or self.chance(60):
                open_ = re.sub(rf"\[{name_of(dtype)},|: {scalar_name(dtype)}$", lambda m: _by(m[0], variable), text)
                self.lines[head] = self.lines[head].replace(text, open_)
        uses = re.compile(rf"(cast\(|SIMD\[|stack\[|iota\(){name_of(dtype)}\b|\b{scalar_name(dtype)}\(")
        for k in range(head + 1, len(self.lines)):
            if self.chance(30):
                self.lines[k] = uses.sub(lambda m: (m[1] or "") + variable + "(" * (not m[1]), self.lines[k])

    # liberties

    def at_liberty(self, name: str) -> Op:
        """Floats that are small whole numbers: sums in any order, and fused products, give the same."""
        self.use("fastmath")
        dtype = self.pick((DType.float32, DType.float64, DType.float16))
        kind = name_of(dtype)
        op = Op(name, (self.pick(LENGTHS),), "a")
        self.scope = self.scope.copy(vars={}, tensors={}, tables={}, stores={}, pointers={}, objects={}, sizes=())
        op.outputs.append(("out0", DType.int64))
        op.signature.append("out0: OutputTensor[int64, 'a']")
        x = self.argument(op, "x", self.pick(self.dtypes), "a", op.shape)
        t = self.argument(op, "t", self.pick(self.dtypes), str(TABLE), (TABLE,))
        self.line(0, "def small(v, dtype):")
        self.line(1, "return (v.cast(int32) & 7).cast(dtype)")
        self.line(0, "")
        self.line(0, "")
        flags = self.pick(("'contract'", "'reassoc'", "'contract', 'reassoc'"))
        self.head(op, once=True, promises=f", fastmath=[{flags}]")
        self.line(1, "def body(i):")
        self.line(2, f"a, b, total = small({x}[i], {kind}), small({t}[i & 15], {kind}), {kind}(0)")
        for _ in range(self.number(1, 2)):
            self._summed(t, kind)
        result = self.pick(("total", "total * 1 + a", "a * b + total", "max(total, b)"))
        self.line(2, f"out0[i] = ({result}).cast(int64)")
        self.line(0, "")
        self.line(1, "parallel_for(out0.dim(0), body)")
        return op

    def _summed(self, t: str, kind: str) -> None:
        """A loop that adds to the total, or a sum of lanes."""
        v = self.fresh("v")
        terms = (
            "a * {0}",
            "{0} * {0} + b",
            "(a + {0}) * b - a",
            "fma(a, {0}, b)",
            "{0} - a * b + {0}",
            "{0} / 1 + (a - {0})",
        )
        term = self.pick(terms).format(v)
        if self.chance(40):
            width = self.pick((8, 4, 16))
            self.line(2, f"{v} = small({t}.load(0, width={width}), {kind})")
            self.line(2, f"total += ({term}).reduce_add().cast({kind})")
            return
        self.line(2, f"for k in range({self.pick(('16', 'i & 15', '9'))}):")
        self.line(3, f"{v} = small({t}[k], {kind})")
        self.line(3, f"total += {term}")


def _by(text: str, variable: str) -> str:
    """A part of a signature with a type variable for its dtype."""
    return f"[{variable}," if text.startswith("[") else f": {variable}"
