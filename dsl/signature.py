"""Signatures as contracts: a schema checked for itself, and calls checked against it.

`bind` unifies what a caller passes with what the signature says: element types with type variables, shapes with dims.
It gives the value of every name and the types of the outputs. Sizes may be ints or the graph's symbolic dims: only
their arithmetic and `==` are used.

Where a type variable gets its dtype from: the inputs; else a parameter of kind dtype that bears its name in lower
case (`U` from `*, u: DType`); else the output types that the caller expects. Where a dim gets its size from: the
inputs; else an int parameter of its name; else the output types that the caller expects.

Input: an `OpSchema`, the types and parameters of a call. Output: a `Binding`, or an error that shows both sides of a
contradiction. Non-goals: no inference inside the kernel, no look at run-time values.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .dims import (
    Axis,
    Binary,
    Call,
    Computed,
    DimItem,
    DimLike,
    Expression,
    Name,
    Negate,
    Number,
    Pack,
    Size,
    dims_error,
    evaluate,
    names_in,
    parse_dims,
)
from .errors import CompileError, CompileErrors, DTypeError, GraphError, did_you_mean, nearest
from .schema import OpSchema, Parameter, TensorArgument
from .source import Place
from .types import DType

TensorSpec = tuple[DType, tuple[DimLike, ...]]


@dataclass(frozen=True)
class Binding:
    """What a call means.

    Attributes:
        dtypes: the dtype of each type variable.
        dims: the size of each named axis.
        packs: the sizes of the axes of each named pack.
        outputs: dtype and shape of each output, in order.
    """

    dtypes: dict[str, DType]
    dims: dict[str, DimLike]
    packs: dict[str, tuple[DimLike, ...]]
    outputs: tuple[TensorSpec, ...]


def bind(
    schema: OpSchema,
    inputs: Sequence[tuple[DType, Sequence[DimLike]]],
    parameters: Mapping[str, object],
    *,
    expected_outputs: Sequence[tuple[DType, Sequence[DimLike]]] | None = None,
    place: Place | None = None,
) -> Binding:
    """Checks a call against its signature and infers the outputs.

    Args:
        schema: the op's contract, one that `check_schema` accepted.
        inputs: dtype and shape of each input, in the order of `schema.inputs`.
        parameters: the compile-time parameters; left-out ones take their defaults.
        expected_outputs: dtype and shape of each output as the caller wants them. They settle what the inputs leave
            open, and contradict nothing.
        place: where the call stands, for messages.

    Raises:
        GraphError: EK0310 wrong number of inputs or outputs, EK0311 wrong rank, EK0312 a name with two sizes,
            EK0313 a size that is not the one written or computed, EK0314 an output that nothing determines, EK0315 an
            expression without a value, and the errors of `bind_parameters`.
        DTypeError: EK0316 a dtype that the argument does not take, EK0317 a type variable with two dtypes, EK0318 an
            output whose dtype nothing determines.
    """
    call = _Call(schema, bind_parameters(schema, parameters, place=place), place)
    given = call.tensors("argument", schema.inputs, inputs, "input")
    for tensor in given:
        call.match_dtype(tensor)
    call.match_shapes(given)
    call.check_computed(given)
    if expected_outputs is None:
        outputs = tuple((call.output_dtype(a), call.output_shape(a)) for a in schema.outputs)
    else:
        wanted = call.tensors("out_types of", schema.outputs, expected_outputs, "output")
        for tensor in wanted:
            call.match_dtype(tensor)
        call.match_shapes(wanted)
        call.check_computed(wanted)
        outputs = tuple((tensor.dtype, tensor.shape) for tensor in wanted)
    return Binding(
        dtypes={name: known.value for name, known in call.dtypes.items()},
        dims={name: known.value for name, known in call.dims.items()},
        packs={name: known.value for name, known in call.packs.items()},
        outputs=outputs,
    )


@dataclass(frozen=True)
class _Known:
    """A value with where it came from: `in argument 'a' (axis 1)`."""

    value: Any
    origin: str


@dataclass(frozen=True)
class _Tensor:
    """One tensor of the call beside its declaration. `label` names it: `argument 'x'`, `out_types of 'out'`."""

    argument: TensorArgument
    label: str
    dtype: DType
    shape: tuple[DimLike, ...]

    @property
    def items(self) -> tuple[DimItem, ...]:
        return parse_dims(self.argument.dims, self.argument.place)


@dataclass
class _Call:
    """The state of one `bind`: what is known so far of dtypes, named axes and packs."""

    schema: OpSchema
    parameters: dict[str, Any]
    place: Place | None
    dtypes: dict[str, _Known] = field(default_factory=dict)
    dims: dict[str, _Known] = field(default_factory=dict)
    packs: dict[str, _Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.integers = {p.name: self.parameters[p.name] for p in self.schema.parameters if p.kind == "int"}
        for name, allowed in self.schema.typevars:
            for parameter in self.schema.parameters:
                if parameter.kind == "dtype" and parameter.name == name.lower():
                    dtype = self.parameters[parameter.name]
                    self._allow(dtype, allowed, f"parameter {parameter.name!r}", None)
                    self.dtypes[name] = _Known(dtype, f"by parameter {parameter.name!r}")

    def fail(
        self,
        message: str,
        argument: TensorArgument | None,
        *,
        kind: type[GraphError] | type[DTypeError] = GraphError,
        notes: Sequence[str] = (),
        **details: Any,
    ) -> NoReturn:
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
    ) -> list[_Tensor]:
        """Each declared argument beside what the call has for it."""
        if len(arguments) != len(specs):
            names = f" ({', '.join(a.name for a in arguments)})" if arguments else ""
            self.fail(
                f"has {_plural(len(arguments), noun)}{names}, but got {len(specs)}",
                None,
                code="EK0310",
                expected=len(arguments),
                got=len(specs),
            )
        return [_Tensor(a, f"{label} {a.name!r}", s[0], tuple(s[1])) for a, s in zip(arguments, specs, strict=True)]

    # ------------------------------------------------------------------------------------------ dtypes

    def match_dtype(self, tensor: _Tensor) -> None:
        declared = tensor.argument.dtype
        self._allow(tensor.dtype, self.schema.allowed(declared), tensor.label, tensor.argument)
        if isinstance(declared, DType):
            return
        known = self.dtypes.setdefault(declared, _Known(tensor.dtype, f"in {tensor.label}"))
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

    def output_dtype(self, argument: TensorArgument) -> DType:
        if isinstance(argument.dtype, DType):
            return argument.dtype
        if argument.dtype not in self.dtypes:
            self.fail(
                f"the inputs do not tell the dtype {argument.dtype!r} of output {argument.name!r}",
                argument,
                kind=DTypeError,
                code="EK0318",
                expected=self.schema.allowed(argument.dtype),
                hint="say it with out_types",
            )
        dtype: DType = self.dtypes[argument.dtype].value
        return dtype

    # ------------------------------------------------------------------------------------------ shapes

    def match_shapes(self, tensors: Sequence[_Tensor]) -> None:
        """Binds names to sizes; a tensor with several unknown packs waits until others have told their lengths."""
        pending = list(tensors)
        while pending:
            ready = next((tensor for tensor in pending if self._unknown_packs(tensor) <= 1), None)
            if ready is None:
                tensor = pending[0]
                self.fail(
                    f'nothing tells where one pack ends in {tensor.label}, its dims are "{tensor.argument.dims}"',
                    tensor.argument,
                    code="EK0311",
                )
            pending.remove(ready)
            self._match_shape(ready)

    def _unknown_packs(self, tensor: _Tensor) -> int:
        return sum(isinstance(i, Pack) and i.count is None and i.name not in self.packs for i in tensor.items)

    def _match_shape(self, tensor: _Tensor) -> None:
        lengths = [self._length(item, tensor) for item in tensor.items]
        free = len(tensor.shape) - sum(length or 0 for length in lengths)
        if free < 0 or (free > 0 and None not in lengths):
            self._wrong_rank(tensor, lengths)
        axis = 0
        for item, length in zip(tensor.items, lengths, strict=True):
            taken = free if length is None else length
            if isinstance(item, Pack):
                self._match_pack(item, tensor, axis, tensor.shape[axis : axis + taken])
            elif isinstance(item, Axis):
                self._match_axis(item, tensor, axis)
            elif isinstance(item, Size) and tensor.shape[axis] != item.size:
                self._wrong_size(tensor, axis, str(item.size), item.size)
            axis += taken

    def _length(self, item: DimItem, tensor: _Tensor) -> int | None:
        """How many axes an item takes; None when the rank of the tensor tells."""
        if not isinstance(item, Pack):
            return 1
        if item.count is not None:
            return self._count(item.count, item, tensor.argument)
        return len(self.packs[item.name].value) if item.name in self.packs else None

    def _count(self, count: Expression, item: Pack, argument: TensorArgument) -> int:
        value = operator.index(self.value_of(count, argument, self.integers))
        if value < 0:
            self.fail(
                f"pack '{item}' of {argument.name!r} would have {value} axes{self._where(count)}",
                argument,
                code="EK0315",
                got=value,
            )
        return value

    def _wrong_rank(self, tensor: _Tensor, lengths: list[int | None]) -> NoReturn:
        least = sum(length or 0 for length in lengths)
        notes = [
            f"'*{item.name}' has {_axes(length)} {self.packs[item.name].origin}"
            if item.name in self.packs
            else f"'{item}' has {_axes(length)}"
            for item, length in zip(tensor.items, lengths, strict=True)
            if isinstance(item, Pack) and length is not None
        ]
        more = " or more" if None in lengths else ""
        self.fail(
            f'{tensor.label} has rank {len(tensor.shape)}, its dims "{tensor.argument.dims}" want rank {least}{more}',
            tensor.argument,
            code="EK0311",
            expected=least,
            got=len(tensor.shape),
            notes=[*notes, f"the shape is {_shown(tensor.shape)}"],
        )

    def _match_axis(self, item: Axis, tensor: _Tensor, axis: int) -> None:
        size = tensor.shape[axis]
        origin = f"in {tensor.label} (axis {axis})"
        known = self.dims.get(item.name)
        if known is None and item.name in self.integers:
            known = _Known(self.integers[item.name], f"by parameter {item.name!r}")
        if known is None:
            known = self.dims[item.name] = _Known(size, origin)
        if known.value != size:
            self.fail(
                f"dim {item.name!r} is {known.value} {known.origin} but {size} {origin}",
                tensor.argument,
                code="EK0312",
                expected=known.value,
                got=size,
                hint=_hint_for_symbols(known.value, size),
            )

    def _match_pack(self, item: Pack, tensor: _Tensor, axis: int, sizes: tuple[DimLike, ...]) -> None:
        if item.name == "_":
            return
        known = self.packs.setdefault(item.name, _Known(sizes, f"in {tensor.label}"))
        if known.value != sizes:
            pairs = enumerate(zip(known.value, sizes, strict=False), axis)
            first = next(((k, a, b) for k, (a, b) in pairs if a != b), None)
            self.fail(
                f"dims '*{item.name}' are {_shown(known.value)} {known.origin}"
                f" but {_shown(sizes)} in {tensor.label}{f' (axis {first[0]})' if first else ''}",
                tensor.argument,
                code="EK0312",
                expected=known.value,
                got=sizes,
                hint=_hint_for_symbols(*first[1:]) if first else None,
            )

    # ------------------------------------------------------------------------------------------ expressions

    def check_computed(self, tensors: Sequence[_Tensor]) -> None:
        """Compares computed sizes with the actual ones, once every name that can be known is known."""
        for tensor in tensors:
            axis = 0
            for item in tensor.items:
                if isinstance(item, Computed):
                    wanted = self.value_of(item.expression, tensor.argument)
                    if wanted != tensor.shape[axis]:
                        where = self._where(item.expression)
                        shown = str(item) if _is_constant(item) else f"{item} = {wanted}{where}"
                        self._wrong_size(tensor, axis, shown, wanted)
                length = self._length(item, tensor)
                if length is None:  # only an unnamed pack stays unknown; it takes the axes that the others leave
                    others = (self._length(other, tensor) for other in tensor.items)
                    length = len(tensor.shape) - sum(other or 0 for other in others)
                axis += length

    def _wrong_size(self, tensor: _Tensor, axis: int, shown: str, wanted: Any) -> NoReturn:
        size = tensor.shape[axis]
        self.fail(
            f'{tensor.label} has size {size} on axis {axis}, its dims "{tensor.argument.dims}" want {shown}',
            tensor.argument,
            code="EK0313",
            expected=wanted,
            got=size,
            hint=_hint_for_symbols(wanted, size),
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
                f"'{expression}' of {argument.name!r} mentions {missing.args[0]!r}, which nothing here gives a size",
                argument,
                code="EK0315",
            )
        except ZeroDivisionError:
            self.fail(
                f"'{expression}' of {argument.name!r} divides by zero{self._where(expression)}",
                argument,
                code="EK0315",
            )

    def _where(self, expression: Expression) -> str:
        values = self.integers | {name: known.value for name, known in self.dims.items()}
        names = dict.fromkeys(name.name for name in names_in(expression))
        return f" [{', '.join(f'{name}={values[name]}' for name in names if name in values)}]" if names else ""

    def output_shape(self, argument: TensorArgument) -> tuple[DimLike, ...]:
        """The shape of an output, from the names that the inputs bound."""
        shape: list[DimLike] = []
        for item in parse_dims(argument.dims, argument.place):
            if isinstance(item, Pack) and item.name in self.packs:
                shape += self.packs[item.name].value
            elif isinstance(item, Size):
                shape.append(item.size)
            elif isinstance(item, Axis) and item.name in self.dims:
                shape.append(self.dims[item.name].value)
            elif isinstance(item, Axis) and item.name in self.integers:
                shape.append(self._not_negative(self.integers[item.name], item, argument, ""))
            elif isinstance(item, Computed):
                value = self.value_of(item.expression, argument)
                shape.append(self._not_negative(value, item, argument, self._where(item.expression)))
            else:
                noun = "the sizes" if isinstance(item, Pack) else "the size"
                self.fail(
                    f"the inputs do not tell {noun} '{item}' of output {argument.name!r}",
                    argument,
                    code="EK0314",
                    hint="say it with out_types",
                )
        return tuple(shape)

    def _not_negative(self, value: Any, item: DimItem, argument: TensorArgument, where: str) -> Any:
        try:
            negative = operator.index(value) < 0
        except TypeError:  # symbolic
            negative = False
        if negative:
            self.fail(
                f"size '{item}' of output {argument.name!r} would be {value}{where}", argument, code="EK0315", got=value
            )
        return value


def _is_constant(item: Computed) -> bool:
    return not any(names_in(item.expression))


def _hint_for_symbols(first: DimLike, second: DimLike) -> str | None:
    if isinstance(first, tuple) or (hasattr(first, "__index__") and hasattr(second, "__index__")):
        return None
    return "if the two are always equal, give them the same name where the graph's inputs are declared"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _axes(count: int | None) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _listed(dtypes: tuple[DType, ...]) -> str:
    names = [str(dtype) for dtype in dtypes]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _shown(shape: Sequence[DimLike]) -> str:
    return f"[{', '.join(map(str, shape))}]"


# ---------------------------------------------------------------------------------------------- parameters


def bind_parameters(schema: OpSchema, given: Mapping[str, object], *, place: Place | None = None) -> dict[str, Any]:
    """The value of every parameter, in the schema's order: the given ones checked, defaults for the rest.

    An int is taken for a float that holds it exactly; a bool is not an int. NumPy's scalars count as the Python values
    that they hold.

    Raises:
        GraphError: EK0320 unknown, EK0321 missing, EK0322 ill-typed parameter.
    """
    known = {p.name: p for p in schema.parameters}
    for name in given:
        if name not in known:
            has = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
            _fail_parameter(schema, f"there is no parameter {name!r}; {has}", name, place, "EK0320", list(known))
    missing = [p for p in schema.parameters if p.required and p.name not in given]
    if missing:
        names = ", ".join(f"{p.name}: {p.kind}" for p in missing)
        noun = "parameter" if len(missing) == 1 else "parameters"
        _fail_parameter(schema, f"missing {noun} {names}", missing[0].name, place, "EK0321")
    return {
        p.name: _checked(schema, p, given[p.name], place) if p.name in given else p.default for p in schema.parameters
    }


def _checked(schema: OpSchema, parameter: Parameter, value: object, place: Place | None) -> Any:
    converted = _convert(parameter.kind, value)
    if converted is not None:
        return converted
    hint = None
    if parameter.kind == "dtype":
        hint = f"write DType.{value}" if isinstance(value, str) and value in DType.__members__ else None
    elif parameter.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        hint = "no float holds this integer exactly"
    raise GraphError(
        f"op {schema.name!r}: parameter {parameter.name!r} is {parameter.kind}, but got {value!r}"
        f" ({type(value).__name__})",
        code="EK0322",
        place=place,
        op=schema.name,
        argument=parameter.name,
        expected=parameter.kind,
        got=type(value).__name__,
        hint=hint,
    )


def _convert(kind: str, value: object) -> Any:
    """The value as a plain Python one of the kind, or None when it is of another kind."""
    is_bool = isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if kind == "bool":
        return bool(value) if is_bool else None
    if kind == "str":
        return str(value) if isinstance(value, str) else None
    if kind == "dtype":
        return value if isinstance(value, DType) else None
    if is_bool:
        return None
    if kind == "float" and isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    try:
        integer = operator.index(value)  # type: ignore[arg-type]  # the TypeError is the answer
        if kind == "int":
            return integer
        return float(integer) if float(integer) == integer else None
    except (TypeError, OverflowError):
        return None


def _fail_parameter(
    schema: OpSchema, message: str, name: str, place: Place | None, code: str, known: Sequence[str] = ()
) -> NoReturn:
    raise GraphError(
        f"op {schema.name!r}: {message}",
        code=code,
        place=place,
        op=schema.name,
        argument=name,
        hint=did_you_mean(name, known),
        expected=nearest(name, known) or None,
    )


# ---------------------------------------------------------------------------------------------- the schema itself


def check_schema(schema: OpSchema) -> None:
    """Checks a signature for itself, when the op is registered.

    Raises:
        CompileError: EK0307 a dims text that is not in the language, EK0308 a name in an expression that nothing
            binds, EK0309 packs that cannot be told apart, EK0304 one name for two things, EK0305 a type variable that
            is not declared, EK0306 a division by the literal zero; several at once as `CompileErrors`.
    """
    checker = _SchemaCheck(schema)
    checker.check_names()
    for argument in schema.tensors:
        checker.parse(argument)
    if len(checker.items) == len(schema.tensors):  # dims that do not parse may be where a name is bound
        checker.check_uses()
        checker.check_packs()
    if checker.errors:
        raise checker.errors[0] if len(checker.errors) == 1 else CompileErrors(checker.errors)


@dataclass
class _SchemaCheck:
    """Collects what is wrong in a schema. `items` holds the dims of each argument that parses."""

    schema: OpSchema
    errors: list[CompileError] = field(default_factory=list)
    items: dict[str, tuple[DimItem, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kinds = {p.name: p.kind for p in self.schema.parameters}

    def fail(self, code: str, message: str, argument: TensorArgument, name: Name | str = "", hint: str = "") -> None:
        """Records a mistake; it points at `name` in the dims text, or at the whole text."""
        at, length = (name.at, len(name.name)) if isinstance(name, Name) else (0, len(argument.dims))
        if isinstance(name, str) and name and name in argument.dims:
            at, length = argument.dims.index(name), len(name)
        details = {"op": self.schema.name, "argument": argument.name}
        message = f"op {self.schema.name!r}, argument {argument.name!r}: {message}"
        self.errors.append(
            dims_error(message, argument.dims, at, length, argument.place, code=code, hint=hint or None, **details)
        )

    def check_names(self) -> None:
        seen: set[str] = set()
        for name in (*(a.name for a in self.schema.arguments), *self.kinds):
            if name in seen:
                message = f"op {self.schema.name!r} has two arguments or parameters named {name!r}"
                place = next((a.place for a in reversed(self.schema.tensors) if a.name == name), self.schema.place)
                self.errors.append(CompileError(message, code="EK0304", place=place, op=self.schema.name))
            seen.add(name)

    def parse(self, argument: TensorArgument) -> None:
        try:
            self.items[argument.name] = parse_dims(argument.dims, argument.place)
        except CompileError as error:
            error.op, error.argument = self.schema.name, argument.name
            self.errors.append(error)
        if isinstance(argument.dtype, str) and argument.dtype not in dict(self.schema.typevars):
            self.fail("EK0305", f"the type variable {argument.dtype!r} is not declared", argument)

    def axes_of(self, arguments: tuple[TensorArgument, ...]) -> set[str]:
        return {item.name for a in arguments for item in self.items.get(a.name, ()) if isinstance(item, Axis)}

    def check_uses(self) -> None:
        """Every name means one thing, and every expression has a value once the call's types are known."""
        known = {name for name, kind in self.kinds.items() if kind == "int"} | self.axes_of(self.schema.inputs)
        for argument in self.schema.inputs:
            self._check_items(argument, known)
        known |= self.axes_of(self.schema.outputs)
        for argument in self.schema.outputs:
            self._check_items(argument, known)

    def _check_items(self, argument: TensorArgument, known: set[str]) -> None:
        packs = {item.name for items in self.items.values() for item in items if isinstance(item, Pack)}
        for item in self.items.get(argument.name, ()):
            if isinstance(item, Axis) and item.name in packs:
                self.fail("EK0304", f"{item.name!r} is one axis and also a pack '*{item.name}'", argument, item.name)
            elif isinstance(item, Axis) and self.kinds.get(item.name, "int") != "int":
                kind = self.kinds[item.name]
                self.fail("EK0304", f"{item.name!r} is a dim and also a parameter of kind {kind}", argument, item.name)
            elif isinstance(item, Pack) and item.count is not None:
                self._check_expression(item.count, argument, {n for n, kind in self.kinds.items() if kind == "int"})
            elif isinstance(item, Computed):
                self._check_expression(item.expression, argument, known)

    def _check_expression(self, expression: Expression, argument: TensorArgument, known: set[str]) -> None:
        for name in names_in(expression):
            if name.name in known:
                continue
            what = f"'{expression}' mentions {name.name!r}"
            if name.name in self.kinds and self.kinds[name.name] != "int":
                what += f", a parameter of kind {self.kinds[name.name]}; only int parameters have a place in dims"
            elif name.name in self.axes_of(self.schema.tensors):
                what += ", a dim that is not known this early"
            else:
                what += ", which is neither a dim of an input nor an int parameter"
            self.fail("EK0308", what, argument, name, did_you_mean(name.name, known) or "")
        for divisor in _divisors(expression):
            if divisor == Number(0):
                self.fail("EK0306", f"'{expression}' divides by zero", argument)

    def check_packs(self) -> None:
        """Some order of the arguments must tell the lengths of all packs: at most one is new in each."""
        known: set[str] = set()
        for arguments in (self.schema.inputs, self.schema.outputs):
            pending = [argument for argument in arguments if argument.name in self.items]
            while pending:
                ready = next((a for a in pending if len(self._new_packs(a, known)) <= 1), None)
                if ready is None:
                    self._fail_packs(pending[0], self._new_packs(pending[0], known))
                    return
                pending.remove(ready)
                known |= {i.name for i in self.items[ready.name] if isinstance(i, Pack) and i.name != "_"}

    def _new_packs(self, argument: TensorArgument, known: set[str]) -> list[str]:
        packs = (item for item in self.items[argument.name] if isinstance(item, Pack))
        return [f"*{pack.name}" for pack in packs if pack.count is None and pack.name not in known]

    def _fail_packs(self, argument: TensorArgument, packs: list[str]) -> None:
        hint = f"say how many axes one of them has, as in {packs[0]}{{count}} with an int parameter 'count'"
        self.fail("EK0309", f"nothing tells where {packs[0]} ends and {packs[1]} begins", argument, packs[1], hint)


def _divisors(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Negate):
        yield from _divisors(expression.operand)
    elif isinstance(expression, Binary):
        if expression.operator in ("//", "%"):
            yield expression.right
        yield from _divisors(expression.left)
        yield from _divisors(expression.right)
    elif isinstance(expression, Call):
        if expression.function == "ceildiv":
            yield expression.arguments[1]
        for argument in expression.arguments:
            yield from _divisors(argument)
