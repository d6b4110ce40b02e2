"""Keeps what is known so far of the names of one call, and makes the errors that show it next to its signature.

Every value is kept with its origin, `in argument 'a' (axis 1)`, so that a contradiction can name the two places that
disagree. Element types are unified here; shapes, the larger half, in `signature_shapes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import DTypeError, EinkornError, GraphError, plural
from ..diagnostics.places import Place
from ..types.dtype import DType
from .dims import DimItem, DimLike, Expression, evaluate, names_in
from .parse_dims import parse_dims
from .schema import OpSchema, TensorArgument


@dataclass(frozen=True)
class SizeOrigin:
    """A value with where it came from: `in argument 'a' (axis 1)`."""

    value: Any
    origin: str


@dataclass(frozen=True)
class CallTensor:
    """One tensor of the call next to its declaration. `label` names it: `argument 'x'`, `out_types of 'out'`."""

    argument: TensorArgument
    label: str
    dtype: DType
    shape: tuple[DimLike, ...]

    @property
    def items(self) -> tuple[DimItem, ...]:
        return parse_dims(self.argument.dims, self.argument.place)


@dataclass
class CallState:
    """The state of one `bind`: what is known so far of dtypes, named axes and packs."""

    schema: OpSchema
    parameters: dict[str, Any]
    place: Place | None
    dtypes: dict[str, SizeOrigin] = field(default_factory=dict)
    dims: dict[str, SizeOrigin] = field(default_factory=dict)
    packs: dict[str, SizeOrigin] = field(default_factory=dict)
    errors: list[EinkornError] = field(default_factory=list)

    def tried(self, work: Callable[..., None], *given: object) -> None:
        """Does a part of the unification; keeps what does not fit."""
        try:
            work(*given)
        except (GraphError, DTypeError) as error:
            self.errors.append(error)

    def __post_init__(self) -> None:
        self.integers = {p.name: self.parameters[p.name] for p in self.schema.parameters if p.kind == "int"}
        for name, allowed in self.schema.typevars:
            for parameter in self.schema.parameters:
                if parameter.kind == "dtype" and parameter.name == name.lower():
                    dtype = self.parameters[parameter.name]
                    self._allow(dtype, allowed, f"parameter {parameter.name!r}", None)
                    self.dtypes[name] = SizeOrigin(dtype, f"by parameter {parameter.name!r}")

    def fail(
        self,
        message: str,
        argument: TensorArgument | None,
        *,
        kind: type[GraphError] | type[DTypeError] = GraphError,
        notes: Sequence[str] = (),
        **details: Any,
    ) -> NoReturn:
        """Raises an error that names the op and the argument, and says where the argument is declared."""
        notes = list(notes)
        if argument is not None and argument.place is not None:
            notes.append(f"'{argument}' is declared at {argument.place}")
        raise kind(
            f"op {self.schema.name!r}: {message}",
            place=self.place,
            op=self.schema.name,
            argument=argument.name if argument else None,
            notes=notes,
            **details,
        )

    def tensors(
        self,
        label: str,
        arguments: tuple[TensorArgument, ...],
        specs: Sequence[tuple[DType, Sequence[DimLike]]],
        noun: str,
    ) -> list[CallTensor]:
        """Each declared argument next to what the call has for it."""
        if len(arguments) != len(specs):
            names = f" ({', '.join(a.name for a in arguments)})" if arguments else ""
            self.fail(
                f"has {plural(len(arguments), noun)}{names}, but got {len(specs)}",
                None,
                code="EK0310",
                expected=len(arguments),
                got=len(specs),
            )
        return [CallTensor(a, f"{label} {a.name!r}", s[0], tuple(s[1])) for a, s in zip(arguments, specs, strict=True)]

    def match_dtype(self, tensor: CallTensor) -> None:
        """Checks a dtype, and binds the type variable that stands for it."""
        declared = tensor.argument.dtype
        self._allow(tensor.dtype, self.schema.allowed(declared), tensor.label, tensor.argument)
        if isinstance(declared, DType):
            return
        known = self.dtypes.setdefault(declared, SizeOrigin(tensor.dtype, f"in {tensor.label}"))
        if known.value is not tensor.dtype:
            self.fail(
                f"dtype {declared!r} is {known.value} {known.origin} but {tensor.dtype} in {tensor.label}",
                tensor.argument,
                kind=DTypeError,
                code="EK0317",
                expected=known.value,
                got=tensor.dtype,
                hint=f"cast one of them, for example to {known.value}",
            )

    def _allow(self, dtype: DType, allowed: tuple[DType, ...], label: str, argument: TensorArgument | None) -> None:
        if dtype not in allowed:
            self.fail(
                f"{label} has dtype {dtype}, but takes {_listed(allowed)}",
                argument,
                kind=DTypeError,
                code="EK0316",
                expected=allowed,
                got=dtype,
            )

    def value_of(
        self, expression: Expression, argument: TensorArgument, values: Mapping[str, Any] | None = None
    ) -> Any:
        """The value of an expression over the known names."""
        if values is None:
            values = self.integers | {name: known.value for name, known in self.dims.items()}
        try:
            return evaluate(expression, values)
        except KeyError as missing:
            self.fail(
                f"'{expression}' of {argument.name!r} mentions {missing.args[0]!r}, whose size is unknown here",
                argument,
                code="EK0315",
            )
        except ZeroDivisionError:
            self.fail(
                f"'{expression}' of {argument.name!r} divides by zero{self.where(expression)}",
                argument,
                code="EK0315",
            )

    def where(self, expression: Expression) -> str:
        """The known values of an expression's names, for messages: ` [k=3, n=4]`."""
        values = self.integers | {name: known.value for name, known in self.dims.items()}
        names = dict.fromkeys(name.name for name in names_in(expression))
        return f" [{', '.join(f'{name}={values[name]}' for name in names if name in values)}]" if names else ""


def _listed(dtypes: tuple[DType, ...]) -> str:
    names = [str(dtype) for dtype in dtypes]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
