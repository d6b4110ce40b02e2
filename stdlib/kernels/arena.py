"""Lays out temporaries in one arena: the sizes of a call become offsets.

Greedy by size, as `graph.passes.memory_plan` describes: the largest first, each at the lowest offset where it overlaps
with no other that lives at the same time. The offsets are the same as those of `Plan.placed`. See also
`compiler.arena`.
"""

from __future__ import annotations

from ...dsl import InputTensor, Int, OutputTensor, int64, max, register


@register("arena")
def arena(
    offsets: OutputTensor[int64, "n"],
    order: OutputTensor[int64, "n"],
    placed: OutputTensor[int64, "n"],
    total: OutputTensor[int64, "1"],
    sizes: InputTensor[int64, "n"],
    first: InputTensor[int64, "n"],
    last: InputTensor[int64, "n"],
) -> None:
    """Offsets of temporaries, and the size of their arena.

    Args:
        offsets: of each temporary, in bytes.
        order, placed: storage: the temporaries by size, and those that have an offset by this.
        total: the size of the arena in bytes.
        sizes: in bytes; their sum fits an int64.
        first, last: the first and the last group that uses each.
    """
    n = sizes.dim(0)
    for i in range(n):
        size = sizes[i]
        j = i
        while j > 0 and sizes[order[j - 1]] < size:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    end = int64(0)
    for k in range(n):
        one = order[k]
        size = sizes[one]
        begins = first[one]
        ends = last[one]
        offset = int64(0)
        p = Int(0)
        while p < k:
            other = placed[p]
            p += 1
            if first[other] <= ends and begins <= last[other]:
                start = offsets[other]
                if offset + size <= start:
                    p = Int(k)
                else:
                    offset = max(offset, start + sizes[other])
        j = k
        while j > 0 and offsets[placed[j - 1]] > offset:
            placed[j] = placed[j - 1]
            j -= 1
        placed[j] = one
        offsets[one] = offset
        end = max(end, offset + size)
    total[0] = end
