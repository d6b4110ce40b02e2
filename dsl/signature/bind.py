"""Binds calls to signatures: checks them, and says what the outputs are.

`bind` unifies what a caller passes with what the signature says: element types with type variables, shapes with dims.
It gives the value of every name and the types of the outputs. Sizes may be ints or the graph's symbolic dims: only
their arithmetic and `==` are used.

Where a type variable gets its dtype from: the inputs; else a parameter of kind dtype that bears its name in lower
case (`U` from `*, u: DType`); else the output types that the caller expects. Where a dim gets its size from: the
inputs; else an int parameter of its name; else the output types that the caller expects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import DTypeError
from ..diagnostics.places import Place
from ..types.dtype import DType
from .call_state import CallState, SizeOrigin
from .dims import DimLike
from .parameters import bind_parameters
from .schema import OpSchema, TensorArgument
from .shapes import match, output_shape

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
    late: Mapping[str, DimLike] | None = None,
    place: Place | None = None,
) -> Binding:
    """Checks a call against its signature and infers the outputs.

    Args:
        schema: the op's contract, one that `check_schema` accepted.
        inputs: dtype and shape of each input, in the order of `schema.inputs`.
        parameters: the compile-time parameters; left-out ones take their defaults.
        expected_outputs: dtype and shape of each output as the caller wants them. They settle what the inputs leave
            open, and contradict nothing.
        late: what stands for the dims that the op's shape function computes, where nothing is expected of them.
        place: where the call stands, for messages.

    Raises:
        GraphError: EK0310 wrong number of inputs or outputs, EK0311 wrong rank, EK0312 a name with two sizes,
            EK0313 a size that is not the one written or computed, EK0314 an output that nothing determines, EK0315 an
            expression without a value, and the errors of `bind_parameters`.
        DTypeError: EK0316 a dtype that the argument does not take, EK0317 a type variable with two dtypes, EK0318 an
            output whose dtype nothing determines.
    """
    call = CallState(schema, bind_parameters(schema, parameters, place=place), place)
    given = call.tensors("argument", schema.inputs, inputs, "input")
    match(call, given)
    if expected_outputs is None:
        for name in schema.late:
            if name in (late or {}):
                call.dims.setdefault(name, SizeOrigin((late or {})[name], "by the op's shape function"))
        outputs = tuple((_output_dtype(call, a), output_shape(call, a)) for a in schema.outputs)
    else:
        wanted = call.tensors("out_types of", schema.outputs, expected_outputs, "output")
        match(call, wanted)
        outputs = tuple((tensor.dtype, tensor.shape) for tensor in wanted)
    return Binding(
        dtypes={name: known.value for name, known in call.dtypes.items()},
        dims={name: known.value for name, known in call.dims.items()},
        packs={name: known.value for name, known in call.packs.items()},
        outputs=outputs,
    )


def _output_dtype(call: CallState, argument: TensorArgument) -> DType:
    if isinstance(argument.dtype, DType):
        return argument.dtype
    if argument.dtype not in call.dtypes:
        call.fail(
            f"the inputs do not determine the dtype {argument.dtype!r} of output {argument.name!r}",
            argument,
            kind=DTypeError,
            code="EK0318",
            expected=call.schema.allowed(argument.dtype),
            hint="pass out_types",
        )
    dtype: DType = call.dtypes[argument.dtype].value
    return dtype
