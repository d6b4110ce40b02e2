"""Counting in parallel: each task counts on its own, then adds its counts to the common ones atomically."""

from __future__ import annotations

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    atomic_add,
    ceildiv,
    foreach,
    int64,
    min,
    parallel_for,
    register,
    stack,
    uint8,
)

CHUNK = 65536  # elements that one task counts


@register("histogram")
def histogram(out: OutputTensor[int64, "256"], image: InputTensor[uint8, "*s"]) -> None:
    """How often each of the values 0 to 255 occurs."""
    foreach(out, lambda i: 0)
    total = image.size

    def count(task):
        counts = stack[int64](256)  # zeroed, and this task's own
        for position in range(task * CHUNK, min(total, (task + 1) * CHUNK)):
            counts[image.at(position)] += 1
        for value in range(256):
            atomic_add(out, value, counts[value])

    parallel_for(ceildiv(total, CHUNK), count)
