"""Stages the choice of tokens from logits."""

from __future__ import annotations

import math

import numpy as np

from ...dsl.diagnostics.errors import brief
from ...dsl.types.dtype import DType
from ..staging.value import TensorValue, TensorValueLike
from ..types.tensor_type import TensorType, shown
from .operands import as_shape, cast_to, check_kind, expand, same_device, scalar, tensor
from .stage import builtin, fail, op

_FAMILY = "token_sampling"
_RANGES = {"temperature": (0, math.inf), "top_k": (0, (1 << 31) - 1), "top_p": (0, 1), "min_p": (0, 1)}
_HOST_ONLY = "a row takes memory of the size of the vocabulary, which a thread of a GPU cannot allocate"


@op(
    dtypes={"logits": "float"},
    example="ops.sample_tokens(logits, 0.7, 40, 0.95, 0.0, 1, 0)",
    host_only=_HOST_ONLY,
)
def sample_tokens(
    logits: TensorValueLike,
    temperature: TensorValueLike = 1.0,
    top_k: TensorValueLike = 0,
    top_p: TensorValueLike = 1.0,
    min_p: TensorValueLike = 0.0,
    seed: TensorValueLike = 0,
    step: TensorValueLike = 0,
) -> tuple[TensorValue, TensorValue]:
    """A token of each row of logits, drawn by its likelihood; see `nn.SamplingParams`.

    Args:
        logits: (rows, vocabulary). NaN counts as minus infinity.
        temperature: what logits are divided by; 0 takes the largest, the first of equal ones.
        top_k: how many of the largest logits are kept, the first of equal ones; 0 for all.
        top_p: of these, the likeliest are kept until they have this share; 1 for all.
        min_p: of these, the ones of at least this share of the best one's likelihood are kept.
        seed, step: integers that the draw depends on, and on nothing else but the row: not on other rows.

    All but the logits are numbers, or tensors (rows).

    Returns:
        The tokens (rows) as int32, -1 where no logit is above minus infinity; and the logarithms of their likelihoods
        (rows) in float32, at temperature 1 and among all tokens.

    Raises:
        GraphError: EK0421 logits of another rank than 2, EK0427 a tensor of another size than the rows, EK0412 a number
            that float32, int32 or int64 does not hold, or a float where an integer belongs, EK0414 a number outside of
            its range: temperature and top_k below 0, top_p and min_p below 0 or above 1, NaN and infinities.
        DTypeError: EK0413 logits that are not floats, tensors that are not integers where these belong.
    """
    name = "sample_tokens"
    x = _logits(name, logits)
    floats = {"temperature": temperature, "top_p": top_p, "min_p": min_p}
    given = {argument: _by_row(name, argument, value, x, DType.float32) for argument, value in floats.items()}
    given["top_k"] = _by_row(name, "top_k", top_k, x, DType.int32)
    given |= {arg: _by_row(name, arg, value, x, DType.int64) for arg, value in {"seed": seed, "step": step}.items()}
    order = ("temperature", "top_k", "top_p", "min_p", "seed", "step")
    tokens, logprobs = builtin(_FAMILY, name, [x, *(given[argument] for argument in order)])
    return tokens, logprobs


@op(
    dtypes={"logits": "float", "history": "index"},
    example="ops.penalize_tokens(logits, history, 1.1, 0.0, 0.0)",
)
def penalize_tokens(
    logits: TensorValueLike,
    history: TensorValueLike,
    repetition: TensorValueLike = 1.0,
    frequency: TensorValueLike = 0.0,
    presence: TensorValueLike = 0.0,
) -> TensorValue:
    """Logits with those of earlier tokens lowered.

    Args:
        logits: (rows, vocabulary).
        history: the earlier tokens (rows, any length), each below the vocabulary; negative numbers fill up.
        repetition: what positive logits of earlier tokens are divided by, and others multiplied by; 1 for nothing.
        frequency: what is subtracted for each time that a token occurs.
        presence: what is subtracted for a token that occurs.

    All but logits and history are numbers, or tensors (rows).

    Raises:
        GraphError: EK0421 ranks other than 2, EK0427 other sizes, EK0412 a number that float32 does not hold.
        DTypeError: EK0413 logits that are not floats, a history that is not of integers.
    """
    name = "penalize_tokens"
    x = _logits(name, logits)
    tokens = tensor(name, "history", history)
    check_kind(name, "history", tokens, "index")
    same_device(name, {"logits": x, "history": tokens})
    if tokens.rank != 2 or tokens.shape[0] != x.shape[0]:
        text = f"argument 'history' is {shown(tokens.shape)}, and there are {x.shape[0]} rows of logits"
        fail(name, text, code="EK0427", argument="history", expected=f"({x.shape[0]}, length)", got=shown(tokens.shape))
    penalties = {"repetition": repetition, "frequency": frequency, "presence": presence}
    values = [_by_row(name, argument, value, x, DType.float32) for argument, value in penalties.items()]
    return builtin(_FAMILY, name, [x, cast_to(tokens, DType.int32), *values])[0]


def _logits(name: str, logits: TensorValueLike) -> TensorValue:
    x = tensor(name, "logits", logits)
    check_kind(name, "logits", x, "float")
    if x.rank != 2:
        text = f"argument 'logits' has rank {x.rank}"
        fail(name, text, code="EK0421", argument="logits", expected="rank 2", got=str(x.rank))
    return x


def _by_row(name: str, argument: str, value: TensorValueLike, x: TensorValue, dtype: DType) -> TensorValue:
    """A number for each row."""
    if isinstance(value, int | float | np.generic):
        low, high = _RANGES.get(argument, (-math.inf, math.inf))
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, int | float) and not (low <= number <= high and abs(number) < math.inf):
            got, wanted = brief(number), f"a number from {low} to {high}"
            fail(name, f"argument '{argument}' is {got}", code="EK0414", argument=argument, expected=wanted, got=got)
        return expand(scalar(name, argument, value, TensorType(dtype, [], x.device)), [x.shape[0]])
    rows = tensor(name, argument, value)
    check_kind(name, argument, rows, "numeric" if dtype.is_float() else "index")
    rows = cast_to(rows, dtype)
    same_device(name, {"logits": x, argument: rows})
    if rows.rank == 0:
        rows = as_shape(rows, [1])
        return expand(rows, [x.shape[0]])
    if rows.rank != 1 or rows.shape[0] != x.shape[0]:
        text = f"argument '{argument}' is {shown(rows.shape)}, and there are {x.shape[0]} rows of logits"
        fail(name, text, code="EK0427", argument=argument, expected=f"({x.shape[0]})", got=shown(rows.shape))
    return rows
