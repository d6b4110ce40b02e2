"""Random numbers: words as they come, by position, and distributions."""

from __future__ import annotations

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    float32,
    float64,
    foreach,
    int64,
    iota,
    parallel_for,
    register,
    uint32,
    uint64,
    unroll,
)
from einkorn.stdlib.algorithms.random import normal, philox, philox_4x32, philox_4x64, uniform


@register("words_32")
def words_32(out: OutputTensor[uint32, "n 4"], key: InputTensor[uint32, "n 2"], counter: InputTensor[uint32, "n 4"]):
    def one(i):
        given = (counter[i, 0], counter[i, 1], counter[i, 2], counter[i, 3])
        words = philox_4x32((key[i, 0], key[i, 1]), given)
        for k in unroll(4):
            out[i, k] = words[k]

    parallel_for(key.dim(0), one)


@register("words_64")
def words_64(out: OutputTensor[uint64, "n 4"], key: InputTensor[uint64, "n 2"], counter: InputTensor[uint64, "n 4"]):
    def one(i):
        given = (counter[i, 0], counter[i, 1], counter[i, 2], counter[i, 3])
        words = philox_4x64((key[i, 0], key[i, 1]), given)
        for k in unroll(4):
            out[i, k] = words[k]

    parallel_for(key.dim(0), one)


@register("by_position")
def by_position(out: OutputTensor[uint32, "n"], vectors: OutputTensor[uint32, "n"], seed: InputTensor[int64, "1"]):
    """The first word of each position, one after another and by vectors."""

    def one(i):
        return philox(seed[0], i)[0]

    foreach(out, lambda i: one(i[0]))

    def eight(block):
        words = philox(seed[0], iota(int64, 8) + 8 * block)
        vectors.store(words[0], 8 * block)

    parallel_for(vectors.dim(0) // 8, eight)


@register("distributions")
def distributions(u: OutputTensor[float32, "n"], z: OutputTensor[float32, "n"], seed: InputTensor[int64, "1"]):
    def one(i):
        words = philox(seed[0], i[0])
        first, _ = normal(words[1], words[2])
        return uniform(words[0]), first

    foreach((u, z), lambda i: one(i))


@register("distributions_64")
def distributions_64(u: OutputTensor[float64, "n"], z: OutputTensor[float64, "n"], seed: InputTensor[uint64, "2"]):
    def one(i):
        words = philox_4x64((seed[0], seed[1]), (i[0].cast(uint64), seed[0], seed[0], seed[0]))
        _, second = normal(words[1], words[2])
        return uniform(words[0]), second

    foreach((u, z), lambda i: one(i))
