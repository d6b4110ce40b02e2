"""Models with some of their inputs fixed: weights, caches, the state of a loop.

See also `Weight` (weights that a graph declares itself).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ...dsl.diagnostics.errors import GraphError, did_you_mean
from ...dsl.diagnostics.places import user_place
from ..driver.buffer import Buffer
from ..ir import GraphIR
from ..types.tensor_type import BufferType
from .inputs import InputCheck


def positions_of(ir: GraphIR, names: Sequence[str]) -> dict[str, int]:
    """The positions of the inputs of a graph, by `names` and by what its author calls them, which wins."""
    return {name: k for listed in (names, ir.names) for k, name in enumerate(listed)}


def placed_by_name(
    ir: GraphIR, names: Sequence[str], taken: Container[int], named: Mapping[str, object]
) -> dict[int, Any]:
    """Inputs that are given by name, by their positions; `taken` are the positions of those that have a value.

    Raises:
        GraphError: EK0469 an input that the graph does not have, or one that is given twice.
    """
    positions = positions_of(ir, names)
    placed: dict[int, object] = {}
    for name, value in named.items():
        position = positions.get(name)
        if position is None or position in taken or position in placed:
            what = f"has no input '{name}'" if position is None else f"gets input '{name}' twice"
            raise GraphError(
                f"graph '{ir.name}' {what}",
                code="EK0469",
                place=user_place(),
                argument=name,
                expected=[each for k, each in enumerate(names) if k not in taken],
                got=name,
                notes=[f"its inputs are {', '.join(positions)}"] if positions else [],
                hint=did_you_mean(name, positions) if position is None else None,
            )
        placed[position] = value
    return placed


class BoundModel:
    """A model whose bound inputs stay the same memory from call to call.

    An input of a `BufferType` is changed where it lies, so that a bound one keeps its state over calls; `bound[name]`
    is its buffer. An output may become the next value of a bound input: see `feed`.
    """

    def __init__(
        self,
        ir: GraphIR,
        checks: Sequence[InputCheck],
        names: Sequence[str],
        run: Callable[..., list[Buffer]],
        bound: Mapping[int, Buffer] | None = None,
        feeds: Mapping[int, int] | None = None,
    ) -> None:
        self._ir, self._checks, self._names, self._run = ir, checks, names, run
        self._bound = dict(bound or {})
        self._feeds = dict(feeds or {})
        self._free = [k for k in range(len(checks)) if k not in self._bound]
        self._inputs: list[object] = [self._bound.get(k) for k in range(len(checks))]

    def bind(self, *inputs: Any, **named: object) -> BoundModel:
        """The same with more inputs fixed: the first of those that a call takes, and those named.

        Raises:
            GraphError: EK0469 an input that the graph does not have, or one that is given twice.
            DTypeError: as by `execute`.
        """
        if len(inputs) > len(self._free):
            raise GraphError(
                f"graph '{self._ir.name}' has no input for {len(inputs)} inputs",
                code="EK0469",
                place=user_place(),
                expected=self.free,
                got=f"{len(inputs)} inputs",
            )
        values = {k: self._checked(k, value) for k, value in self._by_position(inputs, named).items()}
        return BoundModel(self._ir, self._checks, self._names, self._run, self._bound | values, self._feeds)

    def _by_position(self, inputs: Sequence[object], named: Mapping[str, object]) -> dict[int, Any]:
        """Inputs that are given by position and by name, by their positions in the graph."""
        first = dict(zip(self._free, inputs, strict=False))
        return first | placed_by_name(self._ir, self._names, {*first, *self._bound}, named)

    def _checked(self, position: int, value: object) -> Buffer:
        check = self._checks[position]
        if isinstance(value, Buffer):
            check.storage(value) if check.special else check.array(value)
            return value
        array = check.array(value)
        return Buffer.from_numpy(array) if check.special else Buffer._wrap(array, check.device)

    @property
    def free(self) -> list[str]:
        """The names of the inputs that a call takes."""
        return [self._names[k] for k in self._free]

    def __getitem__(self, name: str) -> Buffer:
        """The buffer that is bound to an input.

        Raises:
            GraphError: EK0469 there is no such input, or it is not bound.
        """
        return self._bound[self._position(name)]

    def __setitem__(self, name: str, value: object) -> None:
        """Binds other memory to an input that is bound."""
        position = self._position(name)
        self._bound[position] = self._inputs[position] = self._checked(position, value)

    def _position(self, name: str) -> int:
        names = {each: k for each, k in positions_of(self._ir, self._names).items() if k in self._bound}
        if name not in names:
            raise GraphError(
                f"no input of the name {name!r} is bound",
                code="EK0469",
                place=user_place(),
                argument=name,
                expected=sorted(names),
                got=name,
                hint=did_you_mean(name, names),
            )
        return names[name]

    def feed(self, name: str, output: int) -> None:
        """After each call, its output of this number is the value of the bound input `name`; nothing is copied.

        Raises:
            GraphError: EK0469 no such input is bound, it is changed in place, or the output is of another type.
        """
        position = self._position(name)
        types = self._ir.output_types
        takes = self._ir.inputs[position]
        known = 0 <= output < len(types)
        fits = known and types[output].dtype is takes.dtype and types[output].rank == takes.rank
        if not fits or isinstance(takes, BufferType):
            raise GraphError(
                f"output {output} cannot be fed to '{name}'",
                code="EK0469",
                place=user_place(),
                argument="output",
                expected=str(takes),
                got=str(types[output]) if known else f"{len(types)} outputs",
                hint="ops of the graph change a buffer themselves" if isinstance(takes, BufferType) else None,
            )
        self._feeds[position] = output

    def execute(self, *inputs: object, out: Sequence[Any] | None = None, **named: object) -> list[Buffer]:
        """Runs the graph with the bound inputs and these; see `Model.execute`."""
        if named and len(inputs) <= len(self._free):
            placed = self._by_position(inputs, named)
            inputs = tuple(placed[k] for k in self._free if k in placed)
        if len(inputs) != len(self._free):
            raise GraphError(
                f"graph '{self._ir.name}' takes {len(self._free)} inputs that are not bound, {len(inputs)} are given",
                code="EK0451",
                place=user_place(),
                expected=self.free,
                got=len(inputs),
            )
        given = list(self._inputs)
        for position, value in zip(self._free, inputs, strict=True):
            given[position] = value
        results = self._run(*given, out=out)
        for position, output in self._feeds.items():
            self._bound[position] = self._inputs[position] = results[output]
        return results

    __call__ = execute

    def __repr__(self) -> str:
        bound = ", ".join(self._names[k] for k in sorted(self._bound))
        return f"BoundModel({self._ir.name!r}, bound: {bound})"
