"""Finds the types of an op's results by staging it once, with a name for each size.

Equal sizes of several operands have one name, and 1 is 1, for it broadcasts; so a call with other sizes is of the same
pattern unless these are equal in other places. That a matrix is square says nothing: its axes have names of their own
where the op can be staged so. What the op requires of the names is then checked for the sizes. Where an op cannot be
staged with names (or requires what these sizes do not hold) it is staged with fewer, at last with none, and says what
is wrong.

See also `programs` (code).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.types.dtype import DType
from ..arguments import check_bytes, least_bytes
from ..driver.devices import Device, DeviceRef
from ..ir import ConstantTensor, Constraint
from ..staging.graph import Graph
from ..staging.value import TensorValue, Value
from ..types.dims import Dim
from ..types.promotion import weak_array
from ..types.tensor_type import TensorType, shown
from .arguments import NumberSlot, Operator, Size, Split, fill
from .kinds import TensorKind, kind

MAX_CALLS = 1 << 16  # calls that are remembered
Names = Mapping[int, str]


@dataclass(eq=False)
class Pattern:
    """An op with dtypes, named sizes and what else decides its code.

    Attributes:
        operator, tree: the op and its arguments.
        results: of each its dtype and its dims, by the names `n0`, `n1`, …
        several: what the op gives them in: list, tuple, or None for a single one.
        constraints: what it requires of the sizes.
        numbers: the dtype of each number that comes with a call.
        late: whether a size of a result is known only when it runs, or nothing comes out of it.
    """

    operator: Operator
    tree: Any
    results: list[tuple[DType, tuple[Dim, ...]]]
    several: type | None
    constraints: list[Constraint]
    numbers: list[DType]
    late: bool
    program: Any = None  # the op alone, when it has run

    def stage(self, operands: Sequence[Value], numbers: Sequence[Any], sizes: Sequence[Any], named: bool) -> list[Any]:
        """Stages it in the graph that is being built; gives its results."""
        return results_of(staged(self.operator, self.tree, operands, numbers, sizes, named))


@dataclass(eq=False)
class OpCall:
    """An op with the kinds of its operands.

    Attributes:
        pattern: see there.
        kinds: of its operands; their device is that of the results.
        named: the same with other sizes in the places of some, so that equal ones have the names that the pattern has.
        sizes: those that are arguments.
        results: the kinds of the results; None where they are known only when it has run.
        checks: of each number whether it can be what it has to be; None where it always can.
        fixed: sizes that its code has to know.
        shortcut: makes the values of the results of those of the operands without any code of Einkorn.
    """

    pattern: Pattern
    kinds: tuple[TensorKind, ...]
    sizes: tuple[int, ...]
    results: tuple[TensorKind, ...] | None
    checks: tuple[Any, ...]
    device: Device
    fixed: frozenset[int]
    named: tuple[TensorKind, ...]
    shortcut: Callable[[Sequence[Any], Sequence[Any]], list[Any]] | None = None
    result: Any = None  # the kind of the only result
    count: int = 0  # of operands
    run: Any = None  # runs it alone, when `programs` has made that
    door: Any = None  # does the same, of its operands and its number to its only result
    number: Any = None  # the Python type of its number

    @property
    def name(self) -> str:
        """The op's."""
        return self.pattern.operator.name


_calls: dict[tuple[Any, ...], OpCall] = {}
_patterns: dict[tuple[Any, ...], Pattern] = {}


def call_of(split: Split, device: Device) -> OpCall:
    """The call with these arguments.

    Raises:
        EinkornError: whatever the op says of them.
    """
    key = (*split.key, device)
    entry = _calls.get(key)
    if entry is None:
        if len(_calls) >= MAX_CALLS:
            _calls.clear()
        entry = _calls[key] = _made(split, device)
    return entry


def _made(split: Split, device: Device) -> OpCall:
    kinds = tuple(value._kind for value in split.operands)
    result = _by_axes(split, kinds, device)
    if result is None:
        pattern, names, fixed = _pattern(split, kinds, device)
        result = pattern, _by_name(names), fixed, kinds
    pattern, sizes, fixed, named = result
    results = None
    if not pattern.late:
        shapes = [(dtype, tuple(dim.evaluate(sizes) for dim in dims)) for dtype, dims in pattern.results]
        for dtype, each in shapes:
            text = f"{pattern.operator.name}: its result of {dtype} with the shape {shown(each)}"
            check_bytes(least_bytes(dtype, each), lambda text=text: text)  # type: ignore[misc]
        results = tuple(kind(dtype, each, device) for dtype, each in shapes)
    checks = tuple(_check(dtype, type(n)) for dtype, n in zip(pattern.numbers, split.numbers, strict=True))
    call = OpCall(pattern, kinds, tuple(split.sizes), results, checks, device, fixed, named, count=len(kinds))
    call.result = results[0] if results and pattern.several is None else None
    if pattern.numbers:
        call.number = _python_type(pattern.numbers[0])
    operator = pattern.operator
    if operator.shortcut is not None and kinds and results is not None and all(each.plain for each in kinds):
        args, kwargs = fill(split.tree, kinds, split.numbers, split.sizes)
        call.shortcut = operator.shortcut(call, *args, **kwargs)
    return call


# *** sizes that are equal within an operand ***

_UNLIKE = 1 << 40  # from here on sizes stand for others
_refused: set[tuple[Any, ...]] = set()  # patterns that cannot be staged, or do not hold for some sizes

Found = tuple[Pattern, dict[str, int], frozenset[int], tuple[TensorKind, ...]]


def _by_axes(split: Split, kinds: tuple[TensorKind, ...], device: Device) -> Found | None:
    """The pattern of a call with sizes that are equal within an operand, under names of their own; None for others."""
    if split.sizes or not any(_repeats(each.sizes) for each in kinds):
        return None
    for spread in (_aligned, _chained):
        sizes = spread([each.sizes for each in kinds])
        named = tuple(kind(k.dtype, each, k.device) for k, each in zip(kinds, sizes, strict=True))
        names = names_of(sizes, (), frozenset())
        rest = iter(named)
        key = (*(_anonymous(next(rest) if isinstance(each, TensorKind) else each, names) for each in split.key), device)
        if key in _refused:
            continue
        pattern = _known(key, split, named, names, device)
        pairs = zip((s for each in sizes for s in each), (s for each in kinds for s in each.sizes), strict=True)
        by_name = {names[one]: size for one, size in pairs if one in names}
        if pattern is not None and not pattern.late and _holds(pattern, by_name):
            return pattern, by_name, frozenset(), named
        _refused.add(key)
    return None


def _repeats(sizes: Sequence[int]) -> bool:
    several = [size for size in sizes if size != 1]
    return len(set(several)) < len(several)


def _aligned(shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Other sizes for those of each axis, counted from the last one, as broadcasting does."""
    known: dict[tuple[int, int], int] = {}
    return [
        tuple(
            size if size == 1 else known.setdefault((at - len(shape), size), _UNLIKE + len(known))
            for at, size in enumerate(shape)
        )
        for shape in shapes
    ]


def _chained(shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Other sizes, where the axis before the last of an operand is the last axis of the one before, as in products."""
    results: list[tuple[int, ...]] = []
    for shape, aligned in zip(shapes, _aligned(shapes), strict=True):
        made = list(aligned)
        if results and len(shape) > 1 and shape[-2] == shapes[len(results) - 1][-1]:
            made[-2:] = results[-1][-1], shape[-1] if shape[-1] == 1 else 2 * _UNLIKE + len(results)
        results.append(tuple(made))
    return results


# *** the pattern of a call ***

_levels: dict[tuple[Any, ...], int] = {}  # of a pattern with all sizes named: how far it has to go


def _pattern(split: Split, kinds: tuple[TensorKind, ...], device: Device) -> tuple[Pattern, Names, frozenset[int]]:
    """The pattern of a call, the names of its sizes, and those without names.

    Some ops have to know a few sizes, such as channels and taps, and others must stay open: so first all have names,
    then all but those of the last axes, of the last two, all but those of the first axis, and at last none.
    """
    known, anonymous = None, None
    for level in range(len(_OPEN)):
        fixed = frozenset() if level == 0 else _fixed(kinds, split.sizes, level)
        names = names_of([each.sizes for each in kinds], split.sizes, fixed)
        key = (*(_anonymous(each, names) for each in split.key), device)
        if level == 0:
            anonymous, known = key, _levels.get(key, 0)
        if known is not None and level < known:
            continue
        pattern = _known(key, split, kinds, names, device)
        if pattern is not None and _holds(pattern, _by_name(names)):
            if level and anonymous is not None and level < len(_OPEN) - 1:
                _levels[anonymous] = level
            return pattern, names, fixed
    raise AssertionError("an op without named sizes is staged, or raises an error")


def _known(
    key: tuple[object, ...], split: Split, kinds: Sequence[TensorKind], names: Names, device: Device
) -> Pattern | None:
    """The pattern of a key, staged at first sight; None where it cannot be."""
    pattern = _patterns.get(key)
    if pattern is None and (pattern := _traced(split, kinds, names, device)) is not None:
        alike = (*(NumberSlot if isinstance(each, NumberSlot) else each for each in key), *pattern.numbers)
        pattern = _patterns[key] = _patterns.setdefault(alike, pattern)  # code for 1 and for 1.0 is the same
    return pattern


def _by_name(names: Names) -> dict[str, int]:
    return {name: size for size, name in names.items()}


_OPEN: tuple[Any, ...] = (
    lambda sizes, first: sizes,
    lambda sizes, first: sizes[:-1],
    lambda sizes, first: sizes[:-2],
    lambda sizes, first: sizes[:1] if first else (),
    lambda sizes, first: (),
)


def _fixed(kinds: Sequence[TensorKind], sizes: Sequence[int], level: int) -> frozenset[int]:
    """The sizes without names: those that stand on an axis that has to be known."""
    is_open = _OPEN[level]
    closed = {size for k, each in enumerate(kinds) for size in each.sizes[len(is_open(each.sizes, k == 0)) :]}
    return frozenset(closed if level < 3 else {*closed, *sizes})


def names_of(shapes: Iterable[Sequence[int]], sizes: Iterable[int], fixed: frozenset[int]) -> dict[int, str]:
    """A name for each size but 1, in order of appearance."""
    names: dict[int, str] = {}
    for shape in (*shapes, tuple(sizes)):
        for size in shape:
            if size != 1 and size not in names and size not in fixed:
                names[size] = f"n{len(names)}"
    return names


def _anonymous(part: object, names: Names) -> Any:
    """A part of a key with names for sizes."""
    if isinstance(part, TensorKind):
        return (part.dtype, part.device, *(names.get(size, size) for size in part.sizes))
    return ("size", names.get(part, int(part))) if isinstance(part, Size) else part


def types_of(kinds: Iterable[TensorKind], names: Names) -> list[TensorType]:
    """The types of inputs: their sizes by name."""
    return [TensorType(each.dtype, [names.get(size, size) for size in each.sizes], each.ref) for each in kinds]


def carrier(kinds: Iterable[TensorKind], names: Names) -> list[str]:
    """The names that no input determines: a tensor of no elements has their sizes."""
    determined = {size for each in kinds for size in each.sizes}
    return [name for size, name in names.items() if size not in determined]


def _traced(split: Split, kinds: Sequence[TensorKind], names: Names, device: Device) -> Pattern | None:
    """The pattern; None where the op cannot be staged with names.

    Raises:
        EinkornError: it cannot be staged with the sizes.
    """
    operator: Operator = split.key[0]
    carried = carrier(kinds, names)
    types = types_of(kinds, names)
    if carried:
        types.append(TensorType(DType.bool, [*carried, 0], DeviceRef.from_device(device)))
    numbers = len(split.numbers) if operator.number_dtype else 0
    types += [TensorType(operator.number_dtype, [], DeviceRef.from_device(device)) for _ in range(numbers)]  # type: ignore[arg-type]
    graph = operator.graph(types)
    sizes = [Dim(names.get(size, size)) for size in split.sizes]
    try:
        with shielded(), graph:  # a handler may stage ops of its own
            operands = graph.inputs[: len(kinds)]
            given = graph.inputs[len(types) - numbers :] if numbers else split.numbers
            result = staged(operator, split.tree, operands, given, sizes, bool(names))
    except EinkornError:
        if names:
            return None
        raise
    results = [(value.dtype, tuple(value.shape)) for value in results_of(result)]
    known = set(names.values())
    late = not results or any(not known.issuperset(dim.parameters) for _, dims in results for dim in dims)
    several = type(result) if isinstance(result, list | tuple) else None
    dtypes = [operator.number_dtype] * numbers if operator.number_dtype else _numbers_of(graph, len(split.numbers))
    constraints = [
        each for each in graph._constraints if known.issuperset((*each.left.parameters, *each.right.parameters))
    ]
    return Pattern(operator, split.tree, results, several, constraints, dtypes, late)


def staged(
    operator: Operator,
    tree: object,
    operands: Sequence[Value],
    numbers: Sequence[object],
    sizes: Sequence[object],
    named: bool,
) -> Any:
    """What the op gives in the graph that is being built."""
    args, kwargs = fill(tree, operands, numbers, sizes)
    function = operator.symbolic if named and operator.symbolic is not None else operator.function
    return function(*args, **kwargs)


def results_of(result: Any) -> list[TensorValue]:
    """What an op gives as a list."""
    return [] if result is None else list(result) if isinstance(result, list | tuple) else [result]


def _numbers_of(graph: Graph, count: int) -> list[DType]:
    """The dtypes that numbers took: each was staged as a constant, in order."""
    if not count:
        return []
    nodes = [node for node in graph._nodes if isinstance(node, ConstantTensor) and node.array.ndim == 0]
    assert len(nodes) == count, "an op that takes numbers stages each as a constant, and nothing else"
    return [node.type.dtype for node in nodes]


def _holds(pattern: Pattern, sizes: Mapping[str, int]) -> bool:
    """Whether the sizes are what the op requires."""
    for each in pattern.constraints:
        left, right = each.left.evaluate(sizes), each.right.evaluate(sizes)
        if left != right if each.kind == "equal" else left < right:
            return False
    return pattern.late or all(dim.evaluate(sizes) >= 0 for _, dims in pattern.results for dim in dims)


# *** numbers ***


_EXACT = {DType.float32: (-(1 << 24), 1 << 24), DType.float64: (-(1 << 53), 1 << 53)}
_FINITE = {DType.float32: 3.4028234663852886e38, DType.float64: float("inf")}


def _check(dtype: DType, type: type) -> tuple[DType, Any, Any] | None:
    """The range in which a number surely is exact or rounded as it should; beyond it `converted` looks closely."""
    if type is float and dtype in _FINITE:
        return (dtype, -_FINITE[dtype], _FINITE[dtype])
    if type is int and dtype in _EXACT:
        return (dtype, *_EXACT[dtype])
    if type in (int, bool) and dtype.is_integral() and not dtype.is_storage():
        return (dtype, *dtype.range)
    return (dtype, 1, 0)


def checked(call: OpCall, split: Split) -> list[Any]:
    """The numbers of a call as the op takes them.

    Raises:
        GraphError: EK0412, the dtype cannot hold one.
    """
    return [_converted(call, k, number, split) for k, number in enumerate(split.numbers)]


def _python_type(dtype: DType) -> type:
    if dtype.is_complex():
        return complex
    return float if dtype.is_float() else bool if dtype is DType.bool else int


def _converted(call: OpCall, position: int, number: object, split: Split) -> Any:
    dtype, low, high = call.checks[position]
    if not dtype.is_complex() and not isinstance(number, complex) and low <= number <= high:
        return _python_type(dtype)(number)
    try:
        return _python_type(dtype)(weak_array(number, dtype, call.name, "", user_place()).item())
    except EinkornError:
        _traced(split, call.kinds, {}, call.device)  # which says the same with the argument's name
        raise
