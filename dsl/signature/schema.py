"""Defines what an op promises: its arguments, dims, dtypes, parameters and effects.

An `OpSchema` comes from the signature under `@register`, or from the manifest of a package; both ways it is the same
immutable value. The graph checks calls against it and infers shapes from it; the compiler takes the calling
convention from it; tools print it. Dims stay text here and are parsed by `signature`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any

from ..diagnostics.cached import cached
from ..diagnostics.dataclass import dataclass
from ..diagnostics.places import Place
from ..types.dtype import DType, scalar_name


class Role(Enum):
    """What a kernel may do with a tensor argument."""

    INPUT = "input"
    OUTPUT = "output"
    MUTABLE = "mutable"


class Form(Enum):
    """What a kernel sees of an argument: a tensor, the one number of a tensor without axes, or a tuple of tensors."""

    TENSOR = "tensor"
    SCALAR = "scalar"
    VARIADIC = "variadic"


_MARKERS = {
    (Role.INPUT, Form.TENSOR): "InputTensor",
    (Role.OUTPUT, Form.TENSOR): "OutputTensor",
    (Role.MUTABLE, Form.TENSOR): "MutableInputTensor",
    (Role.INPUT, Form.VARIADIC): "VariadicTensors",
    (Role.OUTPUT, Form.VARIADIC): "OutputVariadicTensors",
}


@dataclass(frozen=True)
class TensorArgument:
    """`x: InputTensor[T, "m n"]`. `dtype` is a DType or the name of a type variable.

    Attributes:
        form: whether it stands for a tensor, a scalar (`s: Float32`, dims ""), or any number of tensors.
        count: of a variadic argument: how many tensors, as a number or the name of an int parameter; "" for any.
        group: of one tensor of a variadic argument, the name of the argument; see `variadic.expand`.
    """

    name: str
    role: Role
    dtype: DType | str
    dims: str
    place: Place | None = None
    form: Form = Form.TENSOR
    count: str = ""
    group: str = ""

    def __str__(self) -> str:
        if self.form is Form.SCALAR:
            return f"{self.name}: {scalar_name(self.dtype) if isinstance(self.dtype, DType) else self.dtype}"
        count = f", {self.count}" if self.count.isdecimal() else f', "{self.count}"' if self.count else ""
        return f'{self.name}: {_MARKERS[self.role, self.form]}[{self.dtype}, "{self.dims}"{count}]'


@dataclass(frozen=True)
class ContextArgument:
    """`ctx: DeviceContext`: the device that the op runs on; the caller passes nothing for it."""

    name: str


Argument = TensorArgument | ContextArgument

PARAMETER_KINDS: dict[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "dtype": DType,
    "ints": tuple,  # of ints
}


@dataclass(frozen=True)
class Parameter:
    """A keyword-only argument, known at compile time. `kind` is a key of `PARAMETER_KINDS`."""

    name: str
    kind: str
    required: bool
    default: Any = None


# How an op that computes nothing takes the elements of its operands, and the parameters that it has then. An op without
# outputs changes its first argument: it stores the elements of the second there.
MOVES: dict[str, tuple[tuple[str, str], ...]] = {
    "reshape": (),  # in row-major order
    "permute": (("order", "ints"),),  # axis k is axis order[k] of the operand
    "broadcast": (),  # repeated along axes of size 1 and new leading axes
    "copy": (),  # each at its own place
    "slice": (("starts", "ints"), ("steps", "ints")),  # along axis k, every steps[k]-th from starts[k] on
    "concat": (("axis", "int"),),  # those of two operands, one behind the other
}
# Of a slice whose bounds are known at run time: axis k starts at given[given_at[k]] unless given_at[k] is negative, and
# a step of 0 stands for an element of the last operand.
SLICE_FROM = (("starts", "ints"), ("given_at", "ints"), ("steps", "ints"))

LAWS: dict[str, str] = {
    "idempotent": "f(f(x)) is f(x); of several inputs, where the last two are the same tensor, the result is that",
    "involution": "f(f(x)) is x",
    "cast": "each element is that of the input in the dtype of the output, as `cast` gives it",
}


def is_pack(dims: str) -> bool:
    """Whether the dims of an argument are one pack, such as `*s`: it takes tensors of any rank and sizes."""
    return re.fullmatch(r"\*[^\W\d]\w*", dims) is not None


@dataclass(frozen=True)
class OpSchema:
    """The contract of one op.

    Attributes:
        name: the registered name.
        arguments: in the kernel's order, outputs among them.
        parameters: compile-time parameters in order.
        typevars: the type variables with the dtypes that each allows, the preferred one first.
        doc: the kernel's docstring.
        fuse: whether neighbours may is fused with this op, and it into them.
        fastmath: which liberties with floating point the kernel requested (`contract`, `reassoc`).
        writes_once: every element of the outputs is stored exactly once and none is read, so that what comes after
            the op may be done in its stores. `foreach` needs no such word.
        reads: what it costs to compute an element of an input at every read, in units of computing it once, for
            inputs where that is bounded; what comes before the op may be done in these reads.
        place: where the kernel is defined.
        counts: of a schema whose variadic arguments are spelled out: how many tensors each of them has.
        late: the names of output dims that the op's shape function computes from the inputs' elements, in its order.
        override: whether the kernel takes the place of another op of its name: one of another library, or a built-in
            one.
        batch: the name of a pack that all outputs and some inputs begin with, whose members are computed independently;
            "" where nothing is promised.
        move: how an op that computes nothing takes the elements of its operands, a key of `MOVES`; "" of all others.
        laws: algebraic laws that hold for every element, to the bit: keys of `LAWS`.
        neutral: by input, the number that changes nothing: where all elements of this input are that number, the result
            is the other input.
        effects: it does more than to store its outputs: it runs in its turn, at each call, read or not.
    """

    name: str
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...] = ()
    typevars: tuple[tuple[str, tuple[DType, ...]], ...] = ()
    doc: str = ""
    fuse: bool = True
    fastmath: frozenset[str] = frozenset()
    writes_once: bool = False
    reads: tuple[tuple[str, int], ...] = ()
    place: Place | None = None
    counts: tuple[tuple[str, int], ...] = ()
    late: tuple[str, ...] = ()
    override: bool = False
    batch: str = ""
    move: str = ""
    laws: frozenset[str] = frozenset()
    neutral: tuple[tuple[str, float], ...] = ()
    effects: bool = False

    @cached
    def tensors(self) -> tuple[TensorArgument, ...]:
        return tuple(a for a in self.arguments if isinstance(a, TensorArgument))

    @cached
    def inputs(self) -> tuple[TensorArgument, ...]:
        """The tensors that a caller passes, in order."""
        return tuple(a for a in self.tensors if a.role is not Role.OUTPUT)

    @cached
    def outputs(self) -> tuple[TensorArgument, ...]:
        return tuple(a for a in self.tensors if a.role is Role.OUTPUT)

    @cached
    def takes_any_shape(self) -> bool:
        """Whether the op takes tensors of any rank and sizes: the dims of each are one pack."""
        return all(is_pack(argument.dims) for argument in self.tensors)

    @property
    def variadic(self) -> tuple[TensorArgument, ...]:
        """The arguments that stand for any number of tensors."""
        return tuple(a for a in self.tensors if a.form is Form.VARIADIC)

    @cached
    def mutable(self) -> tuple[TensorArgument, ...]:
        """The inputs that the kernel changes in place."""
        return tuple(a for a in self.tensors if a.role is Role.MUTABLE)

    def allowed(self, dtype: DType | str) -> tuple[DType, ...]:
        """The dtypes that an argument of this dtype or type variable takes."""
        return (dtype,) if isinstance(dtype, DType) else dict(self.typevars)[dtype]

    def takes(self, inputs: Sequence[DType], outputs: Sequence[DType] | None = None) -> bool:
        """Whether the inputs, and the outputs where they are known, may have these dtypes.

        Variadic arguments have to be spelled out before.
        """
        given = list(zip(self.inputs, inputs, strict=False)) + list(zip(self.outputs, outputs or (), strict=False))
        results: dict[str, DType] = {}
        for argument, dtype in given:
            name = str(argument.dtype)
            if dtype not in self.allowed(argument.dtype) or results.setdefault(name, dtype) is not dtype:
                return False
        return len(inputs) == len(self.inputs)

    def without(self, names: Collection[str]) -> OpSchema:
        """The contract without these arguments and parameters."""
        return dataclasses.replace(
            self,
            arguments=tuple(a for a in self.arguments if a.name not in names),
            parameters=tuple(p for p in self.parameters if p.name not in names),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON value that `from_json` turns back into an equal schema, places aside."""
        return {
            "name": self.name,
            "arguments": [_argument_to_json(a) for a in self.arguments],
            "parameters": [
                {"name": p.name, "kind": p.kind} | ({} if p.required else {"default": _plain(p.default)})
                for p in self.parameters
            ],
            "typevars": {name: [d.name for d in dtypes] for name, dtypes in self.typevars},
            "doc": self.doc,
            "fuse": self.fuse,
            "fastmath": sorted(self.fastmath),
            "writes_once": self.writes_once,
            "reads": dict(self.reads),
        } | {name: value for name, value in self._optional() if value}

    def _optional(self) -> tuple[tuple[str, Any], ...]:
        return (
            ("counts", dict(self.counts)),
            ("late", list(self.late)),
            ("override", self.override),
            ("batch", self.batch),
            ("move", self.move),
            ("laws", sorted(self.laws)),
            ("neutral", dict(self.neutral)),
            ("effects", self.effects),
        )

    @staticmethod
    def from_json(data: dict[str, Any]) -> OpSchema:
        """The schema that `to_json` wrote."""
        typevars = tuple((n, tuple(DType[d] for d in ds)) for n, ds in data["typevars"].items())
        names = {name for name, _ in typevars}
        parameters = []
        for p in data["parameters"]:
            default = p.get("default")
            if p["kind"] == "dtype" and default is not None:
                default = DType[default]
            if p["kind"] == "ints" and default is not None:
                default = tuple(default)
            parameters.append(Parameter(p["name"], p["kind"], "default" not in p, default))
        return OpSchema(
            name=data["name"],
            arguments=tuple(_argument_from_json(a, names) for a in data["arguments"]),
            parameters=tuple(parameters),
            typevars=typevars,
            doc=data["doc"],
            fuse=data["fuse"],
            fastmath=frozenset(data["fastmath"]),
            writes_once=data["writes_once"],
            reads=tuple(sorted(data["reads"].items())),
            counts=tuple(data.get("counts", {}).items()),
            late=tuple(data.get("late", ())),
            override=data.get("override", False),
            batch=data.get("batch", ""),
            move=data.get("move", ""),
            laws=frozenset(data.get("laws", ())),
            neutral=tuple(data.get("neutral", {}).items()),
            effects=data.get("effects", False),
        )


def _plain(default: Any) -> Any:
    """A default as JSON has it."""
    return default.name if isinstance(default, DType) else list(default) if isinstance(default, tuple) else default


def _argument_to_json(argument: Argument) -> dict[str, Any]:
    if isinstance(argument, ContextArgument):
        return {"name": argument.name, "role": "context"}
    form = "" if argument.form is Form.TENSOR else argument.form.value
    optional = {"form": form, "count": argument.count, "group": argument.group}
    return {
        "name": argument.name,
        "role": argument.role.value,
        "dtype": str(argument.dtype),
        "dims": argument.dims,
    } | {name: value for name, value in optional.items() if value}


def _argument_from_json(data: dict[str, Any], typevars: set[str]) -> Argument:
    if data["role"] == "context":
        return ContextArgument(data["name"])
    dtype = data["dtype"] if data["dtype"] in typevars else DType[data["dtype"]]
    form = Form(data.get("form", "tensor"))
    count, group = data.get("count", ""), data.get("group", "")
    return TensorArgument(data["name"], Role(data["role"]), dtype, data["dims"], None, form, count, group)
