"""Short rows on a CPU: 16 of them go side by side, one element of each at a time.

    def block(row_of):                                        # row_of(r): the indices of the r-th of 16 rows
        tile = turned(x, row_of, n)
        total = folded(Sum, lambda k: element_of(tile, k), n, x.dtype)       # a vector: a number of each row

    taken = in_blocks(sizes, n, block)                        # the rows from this one on are left

A tile has element k of all 16 rows side by side. Elements and lanes are joined as `folds` says, so a row has the same
bits as when it is taken by itself, which the rows that are left are.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Index,
    Parts,
    ceildiv,
    int32,
    int64,
    map_parts,
    min,
    parallel_for,
    stack,
    unroll,
)
from .algorithm import product, unravelled
from .folds import element, for_each, is_one_number
from .monoid import DTypes, Monoid, Monoids, Terms
from .transpositions import PAIRS, WORDS

SHORT = 63  # elements of a row at most
SHORT_IF_KNOWN = 16  # where its length is known at compile time, so that vectors along a row need no copies
ABREAST = 16  # rows of a block
TASK = 32768  # elements that a task takes at least
STEP = 8  # rows that are turned at a time,
WIDTH = 4  # with so many elements of each

RowOf = Callable[[Index], tuple[Index, ...]]


def in_blocks(sizes: tuple[Index, ...], n: Index, body: Callable[[RowOf], None], most: int = SHORT) -> Index:
    """Calls body(row_of) for blocks of 16 rows of n elements, in parallel, if n is 1 to `most`.

    `sizes` are those of the axes that count rows. Returns how many rows were taken: the first ones, or none.
    """
    if len(sizes) == 0:
        return 0
    count = product(sizes) // ABREAST * ABREAST if n > 0 and n <= most else 0
    if count > 0:
        grain = ceildiv(TASK, (n + ABREAST) * ABREAST)
        parallel_for(count // ABREAST, lambda number: body(rows_from(number * ABREAST, sizes)), grain=grain)
    return count


def rows_from(first: Index, sizes: tuple[Index, ...]) -> RowOf:
    """A function that gives the indices of row `first + r`, for r below 16."""
    if len(sizes) == 1:
        return lambda r: (first + r,)
    places = for_each(sizes, lambda _, size: stack[int64](ABREAST, zeroed=False))
    for r in range(ABREAST):
        row = unravelled(first + r, sizes)
        for axis in unroll(len(sizes)):
            places[axis][r] = row[axis]
    return lambda r: for_each(places, lambda _, place: place[r])


# *** tiles ***


def new_tile(dtype: AnyDType) -> AnyTensor:
    """A tile that is not written yet."""
    tile: AnyTensor = stack[dtype](SHORT * ABREAST, zeroed=False)
    return tile


def turned(x: AnyTensor, row_of: RowOf, n: Index) -> AnyTensor:
    """The tile of 16 rows."""
    tile = new_tile(x.dtype)
    if n < WIDTH:
        for k in range(n):
            for r in range(ABREAST):
                tile[k * ABREAST + r] = x[row_of(r), k]
    else:
        for r in range(0, ABREAST, STEP):
            for first in range(0, n, WIDTH):
                k = min(first, n - WIDTH)  # the last ones may be among those before them
                rows: tuple[Parts, ...] = ()
                for i in unroll(WIDTH):
                    rows = (
                        *rows,
                        x.load(row_of(r + i), k, width=WIDTH).join(x.load(row_of(r + i + WIDTH), k, width=WIDTH)),
                    )
                columns = _exchanged(*rows)
                for i in unroll(WIDTH):
                    tile.store(columns[i], (k + i) * ABREAST + r)
    return tile


def _exchanged(a: Parts, b: Parts, c: Parts, d: Parts) -> tuple[Parts, ...]:
    """Rows for columns: of the lower four lanes of four vectors, and of the upper four."""
    ab, cd = a.shuffle(WORDS[0], other=b), c.shuffle(WORDS[0], other=d)
    upper_ab, upper_cd = a.shuffle(WORDS[1], other=b), c.shuffle(WORDS[1], other=d)
    lower = ab.shuffle(PAIRS[0], other=cd), ab.shuffle(PAIRS[1], other=cd)
    return *lower, upper_ab.shuffle(PAIRS[0], other=upper_cd), upper_ab.shuffle(PAIRS[1], other=upper_cd)


def element_of(tile: AnyTensor, k: Index) -> Parts:
    """Element k of each row."""
    return tile.load(k * ABREAST, width=ABREAST)


def keep_element(tile: AnyTensor, k: Index, values: Parts) -> None:
    """Stores element k of each row."""
    tile.store(values, k * ABREAST)


def store_turned(out: AnyTensor, tile: AnyTensor, row_of: RowOf, n: Index) -> None:
    """Stores the rows of a tile."""
    whole = n // WIDTH * WIDTH
    for r in range(0, ABREAST, STEP):
        for k in range(0, whole, WIDTH):
            columns: tuple[Parts, ...] = ()
            for i in unroll(WIDTH):
                columns = (*columns, tile.load((k + i) * ABREAST + r, width=STEP))
            rows = _exchanged(*columns)
            for i in unroll(WIDTH):
                out.store(rows[i].slice(0, WIDTH), row_of(r + i), k)
                out.store(rows[i].slice(WIDTH, WIDTH), row_of(r + i + WIDTH), k)
    for k in range(whole, n):
        for r in range(ABREAST):
            out[row_of(r), k] = tile[k * ABREAST + r]


# *** folds ***


def fold_block(
    xs: tuple[AnyTensor, ...],
    monoids: Monoids,
    of: Terms,
    dtype: DTypes,
    rows: tuple[RowOf, int],
    n: Index,
    use: Callable[[Index, tuple[Parts, ...]], None],
) -> None:
    """Calls use(r, settled states) for each of 16 rows. `rows` are the function of their indices, and its length."""
    row_of, axes = rows
    tiles: tuple[AnyTensor, ...] = ()
    for i in unroll(len(xs)):
        tiles = (*tiles, turned(xs[i], row_of, n) if xs[i].rank == axes + 1 else xs[i])

    def elements(k: Index):
        return element(of, for_each(xs, lambda i, x: _abreast(x, tiles[i], k, axes)))

    memory: tuple[Parts, ...] = ()
    for i in unroll(len(monoids)):
        memory = (*memory, _stored(folded(monoids[i], elements, n, dtype)))
    for r in range(ABREAST):
        use(r, for_each(memory, lambda _, slots: map_parts(lambda slot: slot[r], slots)))  # noqa: B023


def _stored(states: Parts) -> Parts:
    """States in memory, where each can be taken by its number."""
    slots = map_parts(lambda x: stack[x.dtype](ABREAST, zeroed=False), states)
    map_parts(lambda slot, x: slot.store(x, 0), slots, states)
    return slots


def _abreast(x: AnyTensor, tile: AnyTensor, k: Index, axes: int) -> Parts:
    """Element k of each row; a tensor of one axis is the same in every row."""
    return element_of(tile, k) if x.rank == axes + 1 else SIMD[x.dtype, ABREAST](x[k])


def folded(monoid: type[Monoid], elements: Callable[[Index], Parts], n: Index, dtype: DTypes) -> Parts:
    """The settled states of n elements of each row, of which there is one at least; elements(k) are vectors."""
    nothing = map_parts(lambda x: SIMD[x.dtype, ABREAST](x), monoid.identity(dtype))
    before = map_parts(lambda x: SIMD[x.dtype, ABREAST](x), monoid.settle(monoid.identity(dtype), 0))
    lanes = monoid.lanes

    def lane(j: Index, step: Index):
        state = monoid.step(nothing, elements(j), SIMD[int32, ABREAST](int32(j)))
        for k in range(j + step, n, step):
            state = monoid.step(state, elements(k), SIMD[int32, ABREAST](int32(k)))
        return monoid.settle(state, 0)

    if monoid.fold != None or lanes == 1:  # noqa: E711
        return lane(0, 1)
    slots = map_parts(lambda x: stack[x.dtype](lanes * ABREAST, zeroed=False), monoid.settle(monoid.identity(dtype), 0))
    count = min(n, lanes)
    half = 1
    while half * 2 < count:
        half = half * 2
    for j in range(count - half):
        _keep(slots, j, monoid.combine(lane(j, lanes), lane(j + half, lanes)))
    for j in range(count - half, half):
        _keep(slots, j, lane(j, lanes))
    while half > 1:
        half = half // 2
        for j in range(half):
            _keep(slots, j, monoid.combine(_kept(slots, j), _kept(slots, j + half)))
    if not is_one_number(before):  # a state of nothing makes NaN of an infinite mean, as it does in a row by itself
        _keep(slots, 0, monoid.combine(before, _kept(slots, 0)))
        if count < lanes:
            _keep(slots, 0, monoid.combine(_kept(slots, 0), before))
    return _kept(slots, 0)


def _keep(slots: Parts, lane: Index, state: Parts) -> None:
    map_parts(lambda slot, x: slot.store(x, lane * ABREAST), slots, state)


def _kept(slots: Parts, lane: Index) -> Parts:
    return map_parts(lambda slot: slot.load(lane * ABREAST, width=ABREAST), slots)
