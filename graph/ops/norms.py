"""Stages norms: layers, roots of mean squares, groups, instances, batches, and rows of length 1.

Weights and shifts may have another float dtype than the input, whose dtype the result has; half types compute in
float32. A plain number serves as a weight of all elements.
"""

from __future__ import annotations

from ..arguments import axis_of, flag_of, in_short, int_of, number_of, wrong
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim
from ..types.tensor_type import shown
from .elementwise import div, maximum
from .operands import HINT_FOR_SYMBOLS, as_shape, check_kind, expand, same_device, tensor, tensors
from .reduction import l2_norm
from .stage import builtin, fail, op

_FAMILY = "norms"


@op(
    dtypes={"input": "float", "gamma": "float", "beta": "float"},
    example="ops.layer_norm(input, gamma, beta, epsilon=1e-5)",
)
def layer_norm(input: TensorValueLike, gamma: TensorValueLike, beta: TensorValueLike, epsilon: float) -> TensorValue:
    """(input - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis.

    Raises:
        GraphError: gamma or beta has another size than the last axis; epsilon is not positive.
    """
    value = _input("layer_norm", "input", input, 1)
    weights = [
        _weight("layer_norm", argument, given, value, -1) for argument, given in (("gamma", gamma), ("beta", beta))
    ]
    return builtin(_FAMILY, "layer_norm", [value, *weights], {"epsilon": _epsilon("epsilon", epsilon)})[0]


@op(dtypes={"x": "float", "weight": "float"}, example="ops.rms_norm(x, weight, epsilon=1e-6)")
def rms_norm(
    x: TensorValueLike,
    weight: TensorValueLike,
    epsilon: float | None = None,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
    *,
    eps: float | None = None,
) -> TensorValue:
    """x / sqrt(mean(x * x) + epsilon) * (weight + weight_offset) along the last axis.

    Args:
        x: a tensor of floats.
        weight: one number for each element of the last axis.
        epsilon: keeps the root away from 0.
        weight_offset: added to the weights first; often 0 or 1.
        multiply_before_cast: half types are rounded after the product alone; else before it, too.
        eps: another name of `epsilon`.

    Raises:
        GraphError: weight has another size than the last axis; epsilon is not positive, or given twice.
    """
    value = _input("rms_norm", "x", x, 1)
    if epsilon is not None and eps is not None:
        wrong("eps", eps, "left out where 'epsilon' is given")
    parameters = {
        "eps": _epsilon("epsilon", epsilon) if eps is None else _epsilon("eps", eps),
        "weight_offset": number_of("weight_offset", weight_offset),
        "multiply_before_cast": flag_of("multiply_before_cast", multiply_before_cast),
    }
    return builtin(_FAMILY, "rms_norm", [value, _weight("rms_norm", "weight", weight, value, -1)], parameters)[0]


@op(
    dtypes={"input": "float", "gamma": "float", "beta": "float"},
    example="ops.group_norm(input, gamma, beta, num_groups=2)",
)
def group_norm(
    input: TensorValueLike,
    gamma: TensorValueLike,
    beta: TensorValueLike,
    num_groups: int,
    epsilon: float = 1e-5,
) -> TensorValue:
    """Normalizes each group of channels of (N, C, ...) by its mean and variance; gamma and beta are those of channels.

    Raises:
        GraphError: the number of channels is not known or does not divide; gamma or beta has another size; epsilon is
            not positive.
    """
    value = _input("group_norm", "input", input, 2)
    return _grouped("group_norm", value, gamma, beta, int_of("num_groups", num_groups), epsilon)


@op(
    dtypes={"input": "float", "gamma": "float", "beta": "float"},
    example="ops.instance_norm(input, gamma, beta)",
)
def instance_norm(
    input: TensorValueLike, gamma: TensorValueLike, beta: TensorValueLike, epsilon: float = 1e-5
) -> TensorValue:
    """Normalizes each channel of each sample of (N, C, ...) by its mean and variance: as many groups as channels.

    Raises:
        GraphError: as `group_norm`.
    """
    value = _input("instance_norm", "input", input, 2)
    return _grouped("instance_norm", value, gamma, beta, None, epsilon)


@op(
    dtypes={"input": "float", "gamma": "float", "beta": "float", "mean": "float", "variance": "float"},
    example="ops.batch_norm(input, gamma, beta, mean, variance)",
)
def batch_norm(
    input: TensorValueLike,
    gamma: TensorValueLike,
    beta: TensorValueLike,
    mean: TensorValueLike,
    variance: TensorValueLike,
    epsilon: float = 1e-5,
) -> TensorValue:
    """(input - mean) / sqrt(variance + epsilon) * gamma + beta for the channels of (N, C, ...), as at inference.

    Raises:
        GraphError: one of the four has another size than axis 1; epsilon is not positive.
    """
    value = _input("batch_norm", "input", input, 2)
    given = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
    weights = [_weight("batch_norm", argument, each, value, 1) for argument, each in given.items()]
    return builtin(_FAMILY, "batch_norm", [value, *weights], {"epsilon": _epsilon("epsilon", epsilon)})[0]


@op(dtypes={"x": "float"}, example="ops.l2_normalize(x, axis=-1)")
def l2_normalize(x: TensorValueLike, axis: int = -1, epsilon: float = 1e-12) -> TensorValue:
    """x divided by its Euclidean norm along `axis`, or by epsilon where the norm is below it.

    Raises:
        GraphError: axis is out of range; epsilon is not positive.
    """
    value = _input("l2_normalize", "x", x, 1)
    norm = l2_norm(value, axis_of(axis, value.rank))
    return div(value, maximum(norm, _epsilon("epsilon", epsilon)))


# *** parts ***


def _input(name: str, argument: str, x: TensorValueLike, rank: int) -> TensorValue:
    value = tensor(name, argument, x)
    check_kind(name, argument, value, "float")
    if value.rank < rank:
        text = f"argument '{argument}' has rank {value.rank}"
        fail(name, text, code="EK0421", argument=argument, expected=f"rank >= {rank}", got=str(value.rank))
    return value


def _weight(name: str, argument: str, given: TensorValueLike, value: TensorValue, axis: int) -> TensorValue:
    """One number for each index of an axis of `value`: a tensor of any float dtype, or plain numbers."""
    if isinstance(given, TensorValue):
        weight = tensor(name, argument, given)
        check_kind(name, argument, weight, "float")
        same_device(name, {"input": value, argument: weight})
    else:
        weight = tensors(name, None, **{"input": value, argument: given})[1]
    wanted = value.shape[axis]
    if weight.rank == 0:
        return expand(weight, [wanted])
    if list(weight.shape) != [wanted]:
        fail(
            name,
            f"argument '{argument}' of shape {shown(weight.shape)} has to have shape ({wanted}), as axis"
            f" {axis % value.rank} of {shown(value.shape)}",
            code="EK0421",
            argument=argument,
            expected=f"({wanted})",
            got=shown(weight.shape),
            hint=None if isinstance(wanted, StaticDim) and _known(weight) else HINT_FOR_SYMBOLS,
        )
    return weight


def _known(value: TensorValue) -> bool:
    return all(isinstance(dim, StaticDim) for dim in value.shape)


def _epsilon(argument: str, value: object) -> float:
    number = number_of(argument, value, wanted="a positive number")
    return number if number > 0 else wrong(argument, value, "a positive number")


def _grouped(
    name: str, value: TensorValue, gamma: TensorValueLike, beta: TensorValueLike, groups: int | None, epsilon: object
) -> TensorValue:
    """The groups of each sample become rows, and the kernel goes over these."""
    channels: Dim = value.shape[1]
    if not isinstance(channels, StaticDim):
        text = f"the number of channels, axis 1 of {shown(value.shape)}, has to be known"
        fail(name, text, code="EK0421", argument="input", expected="a known size", got=str(channels))
    count = int(channels)
    parts = max(count, 1) if groups is None else groups
    if parts < 1 or count % parts:
        text = f"{count} channels do not divide into {in_short(parts)} groups"
        fail(name, text, code="EK0421", argument="num_groups", expected=f"a divisor of {count}", got=in_short(parts))
    weights = [_weight(name, argument, given, value, 1) for argument, given in (("gamma", gamma), ("beta", beta))]
    size = Shape([count // parts, *value.shape[2:]]).num_elements
    rows = as_shape(value, [value.shape[0] * parts, size])
    parameters = {"groups": parts, "epsilon": _epsilon("epsilon", epsilon)}
    return as_shape(builtin(_FAMILY, "group_norm", [rows, *weights], parameters)[0], value.shape)
