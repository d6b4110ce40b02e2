"""Defines what tuning is given: the values of parameters that are tried, and the dims on which the choice depends.

See also `package.findings` (what was found is kept elsewhere).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import CompileError, GraphError, did_you_mean
from ..diagnostics.places import Place
from ..types.dtype import DType
from .axis_names import axis_names
from .dims import Axis, Pack
from .parameters import bind_parameters
from .parse_dims import parse_dims
from .schema import OpSchema

Value = bool | int | float | str
MAX_CANDIDATES = 1000  # candidates of a space


@dataclass(frozen=True)
class TuningSpace:
    """What is tried.

    Attributes:
        values: for each parameter that is chosen, the values that it may have.
        key: the dims on whose sizes the choice depends; a starred one counts by the product of its sizes.
        rounds: how many times each candidate is timed; the median counts.
        limit: how many seconds a candidate may take, compilation included.
        exact: whether its results have to be those of the default bit for bit.
        tolerance: how far they may be from exact ones, as a share of them; None for as far as rounding explains, or the
            default's are.
    """

    values: tuple[tuple[str, tuple[Any, ...]], ...]
    key: tuple[str, ...] = ()
    rounds: int = 3
    limit: float = 10.0
    exact: bool = True
    tolerance: float | None = None

    @property
    def names(self) -> frozenset[str]:
        """The parameters that are chosen."""
        return frozenset(name for name, _ in self.values)

    def candidates(self) -> list[dict[str, Any]]:
        """Each choice of all parameters, the last one changing fastest."""
        names = [name for name, _ in self.values]
        return [
            dict(zip(names, chosen, strict=True))
            for chosen in itertools.product(*(values for _, values in self.values))
        ]


def tuning_space(
    schema: OpSchema,
    values: Mapping[str, Iterable[object]],
    key: Iterable[str],
    rounds: int,
    limit: float,
    exact: bool,
    place: Place | None,
    tolerance: float | None = None,
) -> TuningSpace:
    """A space that fits the signature.

    Raises:
        CompileError: EK0349, it does not.
    """

    def refuse(message: str, hint: str | None = None, argument: str | None = None) -> CompileError:
        text = f"op '{schema.name}' cannot be tuned: {message}"
        return CompileError(text, code="EK0349", place=place, op=schema.name, argument=argument, hint=hint)

    if not isinstance(values, Mapping) or not values:
        raise refuse("the first argument lists the values to try", 'write @autotune({"rows": (4, 8)})')
    listed = {}
    for name, choices in values.items():
        if isinstance(choices, str) or not isinstance(choices, Iterable) or not (chosen := tuple(choices)):
            raise refuse(f"parameter '{name}' has no values to try", "give a tuple of values", name)
        for value in chosen:
            try:
                required = {p.name: None for p in schema.parameters if p.required and p.name != name}
                bind_parameters(schema.without(required), {name: value})
            except (GraphError, TypeError, ValueError) as error:
                text = str(getattr(error, "message", error)).removeprefix(f"op '{schema.name}': ")
                raise refuse(text, getattr(error, "hint", None), name) from None
        listed[name] = chosen
    dims = _dims(schema)
    for name in (names := tuple([key] if isinstance(key, str) else key)):
        if name not in dims:
            wanted = did_you_mean(name, dims) or f"its inputs have {', '.join(dims) or 'none'}"
            raise refuse(f"its inputs have no dim '{name}'", wanted)
    if type(rounds) is not int or rounds < 1:
        raise refuse(f"rounds={rounds!r} is not a number of rounds", "at least 1")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < 1e6:
        raise refuse(f"limit={limit!r} is not a time in seconds", "more than 0")
    if tolerance is not None and (type(tolerance) not in (int, float) or not 0 <= tolerance < 1):
        raise refuse(f"tolerance={tolerance!r} is not a share of a result", "a number from 0 to 1, such as 1e-5")
    near = None if tolerance is None else float(tolerance)
    space = TuningSpace(tuple(listed.items()), names, rounds, float(limit), bool(exact) and near is None, near)
    if (count := len(space.candidates())) > MAX_CANDIDATES:
        raise refuse(f"there are {count:,} combinations to try", f"at most {MAX_CANDIDATES:,}")
    return space


def _dims(schema: OpSchema) -> list[str]:
    """The names of dims of the inputs, those of starred ones too."""
    items = (item for argument in schema.inputs for item in parse_dims(argument.dims, argument.place))
    return list(dict.fromkeys(item.name for item in items if isinstance(item, Axis | Pack) and item.name != "_"))


def plain(value: Any) -> Value:
    """The value of a parameter as JSON has it."""
    result: Value = value.name if isinstance(value, DType) else value
    return result


def sizes_by_name(
    schema: OpSchema, shapes: Sequence[Sequence[Any]], parameters: Mapping[str, object], key: Iterable[str]
) -> dict[str, Any]:
    """The sizes of the dims of a key, in these shapes of the inputs; of a starred dim the product of its sizes.

    A size that is not known is None.
    """
    names = axis_names(schema, [len(shape) for shape in shapes], parameters)
    if names is None:
        return {}
    results: dict[str, Any] = {}
    for axes, shape in zip(names.inputs, shapes, strict=True):
        results = dict(zip(map(str, axes), shape, strict=True)) | results
    for pack, axes in names.packs.items():
        sizes = [results[axis] for axis in axes]
        results[pack] = None if None in sizes else math.prod(sizes)
    return {name: results[name] for name in key if name in results}
