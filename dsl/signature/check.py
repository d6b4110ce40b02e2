"""Checks a signature for itself, when its op is registered: names, dims texts, expressions, packs.

What is accepted here, `signature.bind` can decide for every call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import CompileError, Remark, did_you_mean, joined
from .dims import (
    AnyAxis,
    Axis,
    Computed,
    DimItem,
    DimName,
    DimNumber,
    DimOperation,
    Expression,
    FunctionCall,
    Negate,
    Pack,
    names_in,
)
from .parameters import kind_name
from .parse_dims import dims_error, parse_dims
from .schema import LAWS, MOVES, SLICE_FROM, Form, OpSchema, Role, TensorArgument
from .variadic import OVER_TENSORS, own_names


def check_schema(schema: OpSchema) -> None:
    """Checks a signature for itself, when the op is registered.

    Raises:
        CompileError: EK0307 a dims text that is not in the language, EK0308 a name in an expression that nothing
            binds, EK0309 packs that cannot be distinguished, EK0304 one name for two things, EK0305 a type variable
            that is not declared, EK0306 a division by the literal zero; several at once as `CompileErrors`.
    """
    mistakes = schema_mistakes(schema)
    if mistakes:
        raise joined(mistakes)


def schema_mistakes(schema: OpSchema, whole: bool = True) -> list[CompileError]:
    """What is wrong with a signature; without what its arguments mean to each other where it is not `whole`."""
    checker = _SchemaCheck(schema)
    checker.check_names()
    for argument in schema.tensors:
        checker.parse(argument)
    if whole and len(checker.items) == len(schema.tensors):  # dims that do not parse may be where a name is bound
        checker.check_uses()
        checker.check_variadic()
        checker.check_packs()
        checker.check_batch()
        checker.check_move()
        checker.check_laws()
    return checker.errors


def undetermined_sizes(schema: OpSchema) -> list[Remark]:
    """The sizes of outputs that no input, parameter or shape function determines: every call has to say them."""
    determined = {*schema.late, *(p.name for p in schema.parameters if p.kind == "int")}
    for argument in schema.inputs:
        determined |= {item.name for item in parse_dims(argument.dims) if isinstance(item, Axis | Pack)}
    remarks = []
    for argument in schema.outputs:
        for item in parse_dims(argument.dims):
            if not isinstance(item, Axis | Pack | AnyAxis):
                continue
            name = getattr(item, "name", "_")
            if (name in determined and name != "_") or argument.form is Form.VARIADIC:
                continue
            determined.add(name)
            text = f"op '{schema.name}': nothing determines the size '{item}' of output '{argument.name}'"
            hint = f"it can be a dim of an input, a parameter `*, {name}: int`, or computed under `@op.shape`; "
            hint = hint if isinstance(item, Axis) else ""
            hint += "without that, each call has to pass out_types=[...]"
            remarks.append(
                Remark(text, code="EK0314", place=argument.place, hint=hint, op=schema.name, argument=argument.name)
            )
    return remarks


@dataclass
class _SchemaCheck:
    """Collects what is wrong in a schema. `items` holds the dims of each argument that parses."""

    schema: OpSchema
    errors: list[CompileError] = field(default_factory=list)
    items: dict[str, tuple[DimItem, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kinds = {p.name: p.kind for p in self.schema.parameters}

    def fail(
        self,
        code: str,
        message: str,
        argument: TensorArgument,
        name: DimName | str = "",
        hint: str = "",
        within: str | None = None,
    ) -> None:
        """Records a mistake; it points at `name` in the dims text, or in `within`; or at the whole text."""
        text = argument.dims if within is None else within
        at, length = (name.at, len(name.name)) if isinstance(name, DimName) else (0, len(text))
        if isinstance(name, str) and name and name in text:
            at, length = text.index(name), len(name)
        details = {"op": self.schema.name, "argument": argument.name}
        message = f"op {self.schema.name!r}, argument {argument.name!r}: {message}"
        self.errors.append(
            dims_error(message, text, at, length, argument.place, code=code, hint=hint or None, **details)
        )

    def check_names(self) -> None:
        seen: set[str] = set()
        for name in (*(a.name for a in self.schema.arguments), *self.kinds):
            if name in seen:
                message = f"op {self.schema.name!r} has two arguments or parameters named {name!r}"
                place = next((a.place for a in reversed(self.schema.tensors) if a.name == name), self.schema.place)
                self.errors.append(CompileError(message, code="EK0304", place=place, op=self.schema.name))
            seen.add(name)

    def check_variadic(self) -> None:
        """Counts are int parameters; a tensor's own size stands in its own argument, or is taken together."""
        own = own_names(self.schema)
        for argument in self.schema.tensors:
            if argument.count and not argument.count.isdecimal() and self.kinds.get(argument.count) != "int":
                text = f"the number of tensors is {argument.count!r}, which is not an int parameter"
                hint = did_you_mean(argument.count, self.kinds) or ""
                self.fail("EK0343", text, argument, hint=hint, within=argument.count)
            if argument.form is Form.VARIADIC:
                continue
            for item in self.items[argument.name]:
                for name in _alone(item):
                    if name in own:
                        text = f"{name!r} is a size of each tensor of '{own[name]}'"
                        self.fail("EK0344", text, argument, name, f"take them together: (sum({name})), or max or min")

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
        scalars = {a.name for a in self.schema.tensors if a.form is Form.SCALAR}
        for item in self.items.get(argument.name, ()):
            if isinstance(item, Axis) and item.name in scalars:
                self.fail("EK0304", f"{item.name!r} is a dim and also a scalar argument", argument, item.name)
            elif isinstance(item, Axis) and item.name in packs:
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
            hint = did_you_mean(name.name, known) or self._known_from(expression, argument, name)
            self.fail("EK0308", what, argument, name, hint)
        for divisor in _divisors(expression):
            if divisor == DimNumber(0):
                self.fail("EK0306", f"'{expression}' divides by zero", argument)

    def _known_from(self, expression: Expression, argument: TensorArgument, name: DimName) -> str:
        """The hint for a name that nothing determines when the expression is computed."""
        if argument not in self.schema.inputs:
            return f"'{name.name}' can be a dim of an input, or a parameter: `*, {name.name}: int`"
        turned = {"+": "-", "-": "+", "*": "//", "//": "*"}
        own = f"{name.name}_{argument.name}"
        written = "(...)"
        if isinstance(expression, DimOperation) and isinstance(expression.right, DimNumber) and expression.left == name:
            written = (
                f"({own} {turned[expression.operator]} {expression.right})"
                if expression.operator in turned
                else written
            )
        return f'write "{own}" here, a size of its own, and compute the others from it: "{written}" for "{name.name}"'

    def check_packs(self) -> None:
        """Some order of the arguments must determine the lengths of all packs: at most one is new in each."""
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

    def check_batch(self) -> None:
        """The pack of a promised batch begins all outputs and some inputs, and is the only pack of each."""
        name, begun, mistakes = self.schema.batch, 0, len(self.errors)
        if not name:
            return
        for argument in self.schema.tensors:
            items = self.items[argument.name]
            begins = items[:1] == (Pack(name),)
            begun += begins and argument.role is not Role.OUTPUT
            if begins and not any(isinstance(item, Pack) for item in items[1:]) and argument.form is Form.TENSOR:
                continue
            if begins or any(name in _alone(item) for item in items) or argument.role is Role.OUTPUT:
                text = f'batch="{name}" wants dims that begin with "*{name}" and have no other pack'
                self.fail("EK0319", text, argument, hint=f'"*{name} n", or no batch=')
        if not begun and len(self.errors) == mistakes:
            text = f'batch="{name}" names a pack that no input begins with'
            self.fail("EK0319", text, self.schema.tensors[0], hint=f'x: InputTensor[T, "*{name} n"]')

    def check_move(self) -> None:
        """What only takes elements has the arguments and parameters of its kind of move."""
        move, roles = self.schema.move, [argument.role for argument in self.schema.tensors]
        if not move:
            return
        kinds = tuple((each.name, each.kind) for each in self.schema.parameters)
        operands = roles[1:]
        wanted = 2 if move == "concat" else 1
        if move == "slice" and kinds == SLICE_FROM:
            kinds, wanted = MOVES[move], 3
        stores = move in ("copy", "slice") and roles[:1] == [Role.MUTABLE]
        begins = stores or roles[:1] == [Role.OUTPUT]
        if MOVES.get(move) == kinds and begins and operands == [Role.INPUT] * wanted:
            return
        parameters = ", ".join(f"{name}: {kind_name(kind)}" for name, kind in MOVES.get(move, ()))
        hint = f"an op with one output, {wanted} input{'s' * (wanted > 1)}" + f" and *, {parameters}" * bool(parameters)
        hint = hint if move in MOVES else f"move= is one of {', '.join(MOVES)}"
        self._promise(f"move={move!r} does not suit the signature of op {self.schema.name!r}", hint)

    def check_laws(self) -> None:
        """Laws are about ops of one output; a neutral number is one of the two inputs'."""
        schema = self.schema
        one = len(schema.outputs) == 1 and not schema.mutable
        for law in sorted(schema.laws):
            counts = {"idempotent": (1, 2, 3)}.get(law, (1,))
            if law not in LAWS:
                self._promise(f"there is no law {law!r}", did_you_mean(law, LAWS) or f"laws are {', '.join(LAWS)}")
            elif not (one and len(schema.inputs) in counts):
                self._promise(f"laws={law!r} does not suit the signature of op {schema.name!r}", LAWS[law])
        for name, number in schema.neutral:
            known = [argument.name for argument in schema.inputs]
            if not (one and len(known) == 2 and name in known):
                text = f"neutral={{{name!r}: ...}} does not suit the signature of op {schema.name!r}"
                self._promise(text, "it names one of two inputs of an op with one output")
            elif isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                self._promise(f"neutral={{{name!r}: {number!r}}} is not a finite number", "such as 1 or -0.0")

    def _promise(self, text: str, hint: str) -> None:
        """Records a promise that the signature cannot keep."""
        place, name = self.schema.place, self.schema.name
        self.errors.append(CompileError(text, code="EK0107", place=place, op=name, hint=hint))

    def _new_packs(self, argument: TensorArgument, known: set[str]) -> list[str]:
        packs = (item for item in self.items[argument.name] if isinstance(item, Pack))
        return [f"*{pack.name}" for pack in packs if pack.count is None and pack.name not in known]

    def _fail_packs(self, argument: TensorArgument, packs: list[str]) -> None:
        hint = f"fix the number of axes of one of them, as in {packs[0]}{{count}} with an int parameter 'count'"
        self.fail("EK0309", f"nothing determines where {packs[0]} ends and {packs[1]} begins", argument, packs[1], hint)


def _alone(item: DimItem) -> Iterator[str]:
    """The names of an item that are not taken together by sum, min or max."""

    def visit(expression: Expression) -> Iterator[str]:
        if isinstance(expression, DimName):
            yield expression.name
        elif isinstance(expression, Negate):
            yield from visit(expression.operand)
        elif isinstance(expression, DimOperation):
            yield from visit(expression.left)
            yield from visit(expression.right)
        elif isinstance(expression, FunctionCall) and expression.function not in OVER_TENSORS:
            for argument in expression.arguments:
                yield from visit(argument)

    if isinstance(item, Axis | Pack):
        yield item.name
    elif isinstance(item, Computed):
        yield from visit(item.expression)


def _divisors(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Negate):
        yield from _divisors(expression.operand)
    elif isinstance(expression, DimOperation):
        if expression.operator in ("//", "%"):
            yield expression.right
        yield from _divisors(expression.left)
        yield from _divisors(expression.right)
    elif isinstance(expression, FunctionCall):
        if expression.function == "ceildiv":
            yield expression.arguments[1]
        for argument in expression.arguments:
            yield from _divisors(argument)
