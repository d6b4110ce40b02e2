"""Choices, scopes, literals, and what a program has used.

Choices that come first are the simplest: a failing program shrinks towards them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from einkorn.dsl.types.dtype import DType, scalar_name

Item = TypeVar("Item")
Type = tuple[DType, int]  # an element type and a width

INT: Type = (DType.int64, 1)
BOOL: Type = (DType.bool, 1)
DTYPES = (
    DType.int32, DType.float32, DType.int64, DType.float64, DType.uint8, DType.int8, DType.int16, DType.uint16,
    DType.uint32, DType.uint64, DType.float16, DType.bfloat16, DType.bool,
)  # fmt: skip
STORAGE = tuple(dtype for dtype in DType if dtype.is_storage())
TABLE = 16  # elements of what is read at computed places
WIDTHS = (4, 2, 8, 16)
FLOAT_LITERALS = (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -0.0, 0.1, 1e-3, 7.25, 127.5, 1e4, -1e30, 3e38, 1e-40)
INT_LITERALS = (0, 1, 2, 3, 7, 8, 15, 31, 63, 100, 127, 128, 255, 1 << 15, 1 << 31, (1 << 31) - 1, (1 << 63) - 1)

# Every kind that a program may have in it; campaigns count them, and a test wants each of them in its sample.
FEATURES = (
    *("foreach", "parallel_for", "parallel_chunks", "vector loop", "masked tail", "vectorize", "masked vectorize"),
    *("tile", "computed shape", "shared atomics", "rowwise", "reduce", "scan", "sort", "top_k", "stencil"),
    *("own monoid", "several monoids", "function of elements", "graph", "built-in op", "promises", "digest"),
    *("rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 5", "no elements", "strided input", "packed type"),
    *(
        "storage type",
        "scalar argument",
        "parameter",
        "variadic argument",
        "symbolic sizes",
        "size arithmetic",
        "changed in place",
    ),
    *("operation", "cast", "saturating cast", "bit cast", "select", "comparison", "chain", "and/or", "if/else"),
    *("mathematics", "frexp", "ldexp", "nextafter", "wide product", "power of integers", "random numbers"),
    *("minimum of three", "position", "another element", "rare"),
    *("helper", "closure", "lambda", "generator expression", "early return", "struct", "operator method"),
    *("property", "static method", "field assignment", "tuple", "star"),
    *("table", "view", "gather", "masked load", "strided load", "pointer", "moved pointer", "pointer store"),
    *("storage of one's own", "scatter", "masked store", "strided store", "prefetch", "atomic", "compare_exchange"),
    *("lane", "lane at run time", "lane assignment", "shuffle", "take", "slice", "join", "interleave", "rotate"),
    *("shift", "iota", "lane by lane", "lane reduction", "reduction by function", "place of extreme", "mask"),
    *("print", "several tensors", "call method"),
    *("struct in a struct", "grid"),
    *("if", "elif", "for", "while", "unroll", "break", "continue", "assert", "raise"),
    *("checks all", "checks off", "may fail", "failing graph"),
    *("promised alignment", "type variable", "generic helper", "fastmath", "static assertion", "branch left out"),
    *("buffer read", "buffer overwritten", "changed twice", "library above rank 3"),
)


def name_of(dtype: DType) -> str:
    """How a kernel writes an element type."""
    return "bool8" if dtype is DType.bool else dtype.name


@dataclass(frozen=True)
class Scope:
    """What an expression or a statement may name, each with its type.

    Attributes:
        vars: values. Those in `fixed` may not be assigned.
        tensors: read at `index`, the index of the present element; also as vectors of `loads` elements from there on.
        tables: `TABLE` elements, read anywhere; `stores` are those that may be written, storage of the thread's own.
        pointers: with 9 elements behind them; True for those that may be stored through.
        sizes: Ints that say how large something is.
        functions: what may be called, with the types of arguments and result.
        objects: structs, each with its class.
    """

    vars: dict[str, Type] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    tensors: dict[str, DType] = field(default_factory=dict)
    tables: dict[str, DType] = field(default_factory=dict)
    stores: dict[str, DType] = field(default_factory=dict)
    pointers: dict[str, tuple[DType, bool]] = field(default_factory=dict)
    sizes: tuple[str, ...] = ()
    functions: dict[str, tuple[list[Type], Type]] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    index: str = "i"
    position: str = ""  # the row-major position of the present element in a tensor `{}`
    loads: int = 0
    digest: str = ""  # a UInt64 that the bits of variables go into
    parallel: bool = False  # inside of a loop whose rounds may run at the same time

    def copy(self, **changes: Any) -> Scope:
        """A scope that can be changed without changing this one."""
        names = ("vars", "tensors", "tables", "stores", "pointers", "functions", "objects")
        own = {name: dict(getattr(self, name)) for name in names}
        return replace(self, **{**own, **changes})


class Base:
    """Choices, lines of text, and the present scope."""

    def __init__(self, number: Callable[[int, int], int]) -> None:
        self.number = number  # a choice from a range, both ends included
        self.lines: list[str] = []
        self.prologue: dict[str, str] = {}  # functions that expressions use, by name
        self.budget = 150  # expressions that may still be made
        self.count = 0
        self.scope = Scope()
        self.structs: dict[str, list[Type]] = {}
        self.used: Counter[str] = Counter()
        self.owner = ""  # the function at the top of the file that is being written
        # Functions and classes at the top of the file: lines, what a call of one uses, and which others it needs.
        self.sections: dict[str, list[str]] = {}
        self.brought: dict[str, Counter[str]] = {}
        self.needs: dict[str, set[str]] = {}
        self.needed: set[str] = set()
        self.pointed: set[str] = set()  # tensors whose elements lie side by side: a pointer goes along them
        self.alone = True  # no other op in the graph
        self.quiet = False  # whether nothing is asserted, so that an op may is fused with others
        self.failing = False  # whether accesses may fall outside
        # Few types in one program, so that its values are combined.
        self.dtypes = [self.pick(DTYPES) for _ in range(3)] + [DType.bool]

    # choices

    def pick(self, options: Sequence[Item]) -> Item:
        return options[self.number(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def any_type(self, width: int = 1) -> Type:
        return (self.pick(self.dtypes), width)

    def one_of(self, dtypes: Sequence[DType], otherwise: Sequence[DType]) -> DType:
        """A type of the program's that is among these, or another one of them."""
        return self.pick([d for d in self.dtypes if d in dtypes] or list(otherwise))

    # text

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def use(self, *features: str) -> None:
        """Notes that the program has these kinds in it."""
        for feature in features:
            assert feature in FEATURES, feature
            self.used[feature] += 1

    def with_function(self, name: str, text: str) -> str:
        """Puts a small function at the top of the file; gives its name."""
        self.prologue[name] = text
        return name

    @contextmanager
    def inner(self, **changes: Any) -> Iterator[Scope]:
        """A scope within the present one; what is named in it is gone afterwards."""
        outer, self.scope = self.scope, self.scope.copy(**changes)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def apart(self, name: str) -> Iterator[None]:
        """What is used in the body of a function counts where it is called."""
        outer = self.used, self.needed, self.owner
        self.used, self.needed, self.owner = Counter(), set(), f"_{name}"
        try:
            yield
        finally:
            self.brought[name], self.needs[name] = self.used, self.needed
            self.used, self.needed, self.owner = outer

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Lines for the top of the file; they are left out when nothing calls the function."""
        outer, self.lines = self.lines, []
        try:
            with self.apart(name):
                yield
        finally:
            self.sections[name], self.lines = self.lines, outer

    def called(self, name: str) -> str:
        """Notes that a function, or a class, is used; gives its name."""
        self.used.update(self.brought.get(name, {}))
        self.needed |= {name} | self.needs.get(name, set())
        return name

    def aligned(self, tensor: str, dtype: DType, count: int = 1) -> str:
        """The argument that promises the address of an element whose number is a multiple of `count`; or none.

        Memory begins at a multiple of 64 bytes, unless a tensor lies in it in a way of its own.
        """
        if not self.chance(15):
            return ""
        self.use("promised alignment")
        size, most = (1, 1) if dtype.is_packed() else (max(1, dtype.bits // 8), count)
        self.pointed |= {tensor.partition("[")[0]} if most > 1 else set()
        return f", align={size * self.pick([n for n in (1, 2, 4, 8, 16) if n <= most and size * n <= 64])}"

    # literals

    def literal(self, type: Type, *, typed: bool = True) -> str:
        dtype, width = type
        if dtype.is_storage():
            return f"{self.literal((DType.float32, width))}.cast({name_of(dtype)})"
        if dtype is DType.bool:
            text = self.pick(("False", "True"))
        elif dtype.is_float():
            text = repr(self.pick(FLOAT_LITERALS))
        else:
            low, high = dtype.range
            text = str(self.pick([n for n in (*INT_LITERALS, -1, -2, -7, low, high) if low <= n <= high]))
        if width > 1:
            return f"SIMD[{name_of(dtype)}, {width}]({text})"
        return f"{scalar_name(dtype)}({text})" if typed else text
