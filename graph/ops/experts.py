"""Stages the routing of tokens to experts and their products."""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import in_short, int_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.tensor_type import shown
from .operands import HINT_FOR_SYMBOLS, as_shape, cast_to, check_kind, same_device, tensor, tensors
from .stage import builtin, fail, op

_FAMILY = "moe"


@op(dtypes={"topk_ids": "index"}, example="ops.moe_create_indices(topk_ids, 4)")
def moe_create_indices(topk_ids: TensorValueLike, num_experts: int) -> tuple[TensorValue, TensorValue, TensorValue]:
    """An order of tokens by expert.

    Args:
        topk_ids: numbers of experts of any shape, such as (tokens, experts of each); each below `num_experts`.
        num_experts: how many experts there are.

    Returns:
        As int32: the places of the flattened `topk_ids` sorted by expert, stably; where each expert begins in this
        order, and its end; and the place in this order of each of the flattened numbers.

    Raises:
        GraphError: EK0414 a number of experts below 1, or beyond int32.
        DTypeError: EK0413 numbers that are not integers.
    """
    name = "moe_create_indices"
    ids = tensor(name, "topk_ids", topk_ids)
    check_kind(name, "topk_ids", ids, "index")
    experts = int_of("num_experts", num_experts, "EK0414")
    if not 1 <= experts < 1 << 31:
        text = f"argument 'num_experts' is {in_short(experts)}"
        wanted = "1 to 2**31 - 1"
        fail(name, text, code="EK0414", argument="num_experts", expected=wanted, got=in_short(experts))
    flat = as_shape(cast_to(ids, DType.int32), [ids.shape.num_elements])
    order, starts, restore = builtin(_FAMILY, name, [flat], {"experts": experts})
    return order, starts, restore


@op(dtypes={"hidden_states": "float"}, example="ops.grouped_matmul_ragged(hidden_states, weight, starts)")
def grouped_matmul_ragged(
    hidden_states: TensorValueLike, weight: TensorValueLike, expert_start_indices: TensorValueLike
) -> TensorValue:
    """Products of the rows of each expert with its matrix, in one kernel; experts without rows cost nothing.

    Args:
        hidden_states: (rows, k), those of the first expert first.
        weight: (experts, n, k).
        expert_start_indices: integers (experts + 1): where the rows of each expert begin, and their end.

    Returns:
        A tensor (rows, n); zeros in rows before the first start and from the end on.

    Raises:
        GraphError: EK0421 ranks, EK0427 sizes that differ.
        DTypeError: EK0413 operands that are not floats.
    """
    name = "grouped_matmul_ragged"
    x, matrices = tensors(name, hidden_states=hidden_states, weight=weight)
    starts = tensor(name, "expert_start_indices", expert_start_indices)
    check_kind(name, "hidden_states", x, "float")
    check_kind(name, "expert_start_indices", starts, "index")
    same_device(name, {"hidden_states": x, "expert_start_indices": starts})
    ranks: tuple[tuple[str, TensorValue, int], ...] = (
        ("hidden_states", x, 2),
        ("weight", matrices, 3),
        ("expert_start_indices", starts, 1),
    )
    for argument, value, rank in ranks:
        if value.rank != rank:
            text = f"argument '{argument}' has rank {value.rank}"
            fail(name, text, code="EK0421", argument=argument, expected=f"rank {rank}", got=str(value.rank))
    sizes: tuple[tuple[str, str, Any, Any], ...] = (
        ("weight", "inner sizes", x.shape[1], matrices.shape[2]),
        ("expert_start_indices", "numbers of experts and of starts less one", matrices.shape[0], starts.shape[0] - 1),
    )
    for argument, what, wanted, got in sizes:
        if wanted != got:
            text = f"{shown(x.shape)} by {shown(matrices.shape)}: the {what} are {wanted} and {got}"
            fail(
                name, text, code="EK0427", argument=argument, expected=str(wanted), got=str(got), hint=HINT_FOR_SYMBOLS
            )
    return builtin(_FAMILY, name, [x, matrices, cast_to(starts, DType.int32)])[0]
