"""A static model of what a product by tiles costs on a GPU: by which tiles, in how many pieces of the inner axis.

A block needs clocks for each step of the inner axis: those of the matrix unit, or those in which its tiles arrive from
the cache, whichever is more; and some before its first step and behind its last. All multiprocessors work on two blocks
each, or more, which take three quarters of the time of one behind the other: where there are fewer blocks, nothing
hides what they wait for. Pieces of the inner axis make more blocks, whose sums a second launch adds up.

The figures are of one multiprocessor of recent GPUs, in clocks: not those of a device, but so that the order of
choices is right. They are whole numbers, as sizes may be known at the call only.
"""

from __future__ import annotations

from ...dsl import Index, ceildiv, compiled_for, max, min

PRODUCTS = 1024  # multiplications in a clock
ARRIVING = 32  # bytes in a clock
STARTING = 2000  # clocks until the first tiles have arrived
ENDING = 1000  # clocks to store the last result
JOINING = 6000  # clocks until a second launch has begun and read its first sums
LEAST_STEPS = 4  # steps of a piece of the inner axis
MOST_PIECES = 64
FULL = 2  # blocks of a multiprocessor that hide what each of them waits for


def pieces_of(blocks: Index, steps: Index) -> Index:
    """Into how many pieces the inner axis of `steps` steps is cut, where there are so many blocks of tiles."""
    units = compiled_for().multiprocessors
    rest = min(max(blocks, 1) - 1, units // 2)  # which is rounded up where there are few blocks
    wanted = (units * FULL + rest) // max(blocks, 1)
    pieces: Index = max(min(wanted, min(steps // LEAST_STEPS, MOST_PIECES)), 1)
    return pieces


def clocks_of(shape: tuple[int, int, int], blocks: Index, steps: Index, pieces: Index) -> Index:
    """The clocks of a product by tiles of `shape` (rows, columns, inner length).

    Args:
        blocks: tiles of the result.
        steps, pieces: of the inner axis.
    """
    M, N, K = shape
    units = compiled_for().multiprocessors
    step = max(M * N * K // PRODUCTS, (M + N) * K * 2 // ARRIVING)
    own = ceildiv(steps, pieces) * step + ENDING
    joined = JOINING + pieces * blocks * M * N * 4 // (ARRIVING * units)
    each = max(ceildiv(blocks * pieces, units), FULL)  # blocks of a multiprocessor
    clocks: Index = each * own * 3 // 4 + STARTING + min(pieces - 1, 1) * joined
    return clocks


def arriving(shape: tuple[int, int, int], blocks: Index, together: int) -> Index:
    """What a multiprocessor reads for a step of all its tiles, in elements of a row of either operand.

    Args:
        shape: rows and columns of a tile, and warps.
        together: blocks that a multiprocessor has at a time.
    """
    rounds: Index = ceildiv(blocks, compiled_for().multiprocessors * together) * together
    return rounds * (shape[0] + shape[1])
