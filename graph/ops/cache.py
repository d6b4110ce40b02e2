"""Stages stores to a cache of keys and values in pages, and attention to what it holds.

See docs/serving.md, and `nn.PagedKVCacheManager`, which says which pages a sequence has.
"""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import in_short, int_of
from ..staging.value import BufferValue, TensorValue, TensorValueLike
from ..types.dims import StaticDim
from ..types.tensor_type import shown
from .operands import (
    HINT_FOR_SYMBOLS,
    buffer_of,
    cast_to,
    check_kind,
    same_device,
    scale_of,
    tensor,
    tensors,
    window_of,
)
from .stage import builtin, fail, op

_FAMILY = "cache"
MOST_NUMBERS = 256  # of a head
SCALE = 4  # bytes of the scale of a place, in pages of 8 bits


@op(
    dtypes={"pages": "pages", "key": "float", "value": "float"},
    example="ops.kv_cache_store(pages, key, value, offsets, lengths, table)",
)
def kv_cache_store(
    pages: BufferValue,
    key: TensorValueLike,
    value: TensorValueLike,
    offsets: TensorValueLike,
    lengths: TensorValueLike,
    table: TensorValueLike,
    *,
    layer: int = 0,
) -> None:
    """Writes the keys and values of rows to the places behind those that their sequences have.

    Args:
        pages: the memory (pages, 2, layers, heads, places of a page * numbers); numbers are rounded to its dtype. Of
            int8, float8_e4m3fn and float8_e5m2 each place has a float32 scale in the last 4 * places bytes of a head,
            so that the last axis is places * (numbers + 4).
        key, value: (rows, heads, numbers), the rows of the first sequence first.
        offsets: integers (sequences + 1): where the rows of each sequence begin, and their end. Rows behind belong
            to no sequence, and are not written.
        lengths: integers (sequences): how many places each sequence has already.
        table: integers (sequences, most pages of one): the pages of each sequence.
        layer: the layer of the pages.

    Raises:
        DTypeError: EK0460 `pages` is not a buffer, EK0413 operands of other dtypes.
        GraphError: EK0421 ranks, EK0427 sizes that differ, EK0414 a layer that there is not.
        KernelError: when it runs, a page is out of range.
    """
    name = "kv_cache_store"
    target = _pages(name, pages, layer)
    k, v = tensors(name, key=key, value=value)
    check_kind(name, "key", k, "float")
    _check_rank(name, "key", k, 3)
    for argument, x in (("key", k), ("value", v)):
        _check_sizes(name, argument, "shapes", k.shape, x.shape)
        _check_sizes(name, argument, "heads", target.shape[3:4], x.shape[1:2])
    _check_room(name, target, k)
    batch = _batch(name, k, offsets, lengths, table)
    builtin(_FAMILY, name, [target, k, v, *batch], {"layer": layer})


@op(
    dtypes={"query": "float", "pages": "pages"},
    example="ops.flash_attention_ragged(query, pages, offsets, lengths, table)",
)
def flash_attention_ragged(
    query: TensorValueLike,
    pages: BufferValue | TensorValueLike,
    offsets: TensorValueLike,
    lengths: TensorValueLike,
    table: TensorValueLike,
    *,
    layer: int = 0,
    window: int | None = None,
    scale: float | None = None,
) -> TensorValue:
    """Causal attention of rows to the keys and values of their sequences, up to their own places.

    Keys and values of the rows themselves are stored before, by `kv_cache_store`. Sums are in float32 or wider. A
    result depends on its row and its sequence only: its bits are the same in any batch.

    Args:
        query: (rows, heads, numbers), the rows of the first sequence first; neighbouring heads share one of the pages.
        pages, offsets, lengths, table, layer: as of `kv_cache_store`; pages may be a tensor, too. Rows that belong to
            no sequence give 0.
        window: a row sees the last `window` places, its own included; all when left out.
        scale: 1 / sqrt(the size of a head) when left out.

    Raises:
        DTypeError: EK0413 operands of other dtypes.
        GraphError: EK0421 ranks, EK0427 sizes that differ, EK0495 heads that cannot be shared evenly, EK0414 a layer
            that there is not, heads of more than 256 numbers, a window below 1, or a scale that is not a finite number.
        KernelError: when it runs, a page is out of range.
    """
    name = "flash_attention_ragged"
    q = tensor(name, "query", query)
    check_kind(name, "query", q, "float")
    _check_rank(name, "query", q, 3)
    source = _checked(name, pages if isinstance(pages, BufferValue) else tensor(name, "pages", pages), layer)
    _check_room(name, source, q)
    heads, shared = q.shape[1], source.shape[3]
    if heads != shared and not (
        isinstance(heads, StaticDim)
        and isinstance(shared, StaticDim)
        and int(shared) > 0
        and int(heads) % int(shared) == 0
    ):
        text = f"{heads} heads of queries cannot share {shared} heads of keys evenly"
        fail(name, text, code="EK0495", argument="pages", expected=f"a divisor of {heads}", got=str(shared))
    batch = _batch(name, q, offsets, lengths, table)
    parameters = {"layer": layer, "window": window_of(name, window), "scale": scale_of(name, scale, q)}
    return builtin(_FAMILY, name, [q, source, *batch], parameters, [q.type])[0]


def _pages(name: str, pages: BufferValue, layer: int) -> Any:
    return _checked(name, buffer_of(name, "pages", pages), layer)


def _checked(name: str, target: BufferValue | TensorValue, layer: object) -> Any:
    """Pages of an op, which are a buffer or a tensor, and have the layer."""
    check_kind(name, "pages", target, "pages")
    _check_rank(name, "pages", target, 5)
    _check_sizes(name, "pages", "parts of a page", (2,), target.shape[1:2])
    number, layers = int_of("layer", layer, "EK0414"), target.shape[2]
    if not number >= 0 or (isinstance(layers, StaticDim) and number >= int(layers)):
        text = f"argument 'layer' is {in_short(number)}, and the pages have {layers} layers"
        fail(name, text, code="EK0414", argument="layer", expected=f"0 to {layers} - 1", got=in_short(number))
    return target


def _check_room(name: str, pages: Any, rows: TensorValue) -> None:
    """Heads have few enough numbers, and a page has whole places of them, with scales where these are."""
    size, room = rows.shape[2], pages.shape[4]
    if not isinstance(size, StaticDim) or not 1 <= int(size) <= MOST_NUMBERS:
        text = f"heads have {size} numbers"
        fail(name, text, code="EK0414", argument="pages", expected=f"1 to {MOST_NUMBERS}", got=str(size))
    is_scaled = pages.dtype.size_in_bytes == 1
    place = int(size) + SCALE * is_scaled
    if not isinstance(room, StaticDim) or int(room) % place or int(room) == 0:
        text = f"a head of a page has {room} numbers, which are no places of {place} numbers"
        fail(name, text, code="EK0427", argument="pages", expected=f"a multiple of {place}", got=str(room))
    if is_scaled and int(room) // place * int(size) % SCALE:
        text = f"{int(room) // place} places of {size} numbers leave the scales behind them unaligned"
        fail(name, text, code="EK0427", argument="pages", expected=f"a multiple of {SCALE} numbers", got=str(size))


def _batch(name: str, rows: TensorValue, offsets: Any, lengths: Any, table: Any) -> list[TensorValue]:
    """Offsets, lengths and the table as uint32."""
    batch = []
    for argument, given, rank in (("offsets", offsets, 1), ("lengths", lengths, 1), ("table", table, 2)):
        value = tensor(name, argument, given)
        check_kind(name, argument, value, "index")
        _check_rank(name, argument, value, rank)
        batch.append(cast_to(value, DType.uint32))
    same_device(name, {"rows": rows, "offsets": batch[0], "lengths": batch[1], "table": batch[2]})
    sequences = batch[1].shape[0]
    _check_sizes(name, "offsets", "numbers of offsets", (sequences + 1,), batch[0].shape)
    _check_sizes(name, "table", "numbers of sequences", (sequences,), batch[2].shape[:1])
    return batch


def _check_rank(name: str, argument: str, value: Any, rank: int) -> None:
    if value.rank != rank:
        text = f"argument '{argument}' has rank {value.rank}"
        fail(name, text, code="EK0421", argument=argument, expected=f"rank {rank}", got=str(value.rank))


def _check_sizes(name: str, argument: str, what: str, wanted: Any, got: Any) -> None:
    if tuple(wanted) != tuple(got):
        text = f"argument '{argument}': the {what} are {shown(wanted)} and {shown(got)}"
        fail(
            name,
            text,
            code="EK0427",
            argument=argument,
            expected=shown(wanted),
            got=shown(got),
            hint=HINT_FOR_SYMBOLS,
        )
