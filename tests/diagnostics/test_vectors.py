"""Mistakes with vectors, pointers and atomics: each with its golden text."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

import pytest


def kernel(body: str, *, before: str = "") -> str:
    signature = 'out: OutputTensor[T, "n"], x: InputTensor[T, "n"]'
    return f'{dedent(before)}\n\n@register("op")\ndef op({signature}):\n{indent(dedent(body).strip(), "    ")}\n'


LANES = {
    "vector_slice_of_three": kernel("v = x.load(0, width=8)\nout.store(v[0:3], 0)"),
    "vector_lane_outside": kernel("v = x.load(0, width=8)\nout[0] = v[8]"),
    "vector_lane_stored_outside": kernel("v = x.load(0, width=4)\nv[4] = 1.0\nout.store(v, 0)"),
    "vector_lane_of_another_type": kernel("v = x.load(0, width=4)\nv[0] = Int32(3)\nout.store(v, 0)"),
    "vector_shuffle_at_run_time": kernel("v = x.load(0, width=4)\nout.store(v.shuffle(x.dim(0), 1), 0)"),
    "vector_shuffle_outside": kernel("v = x.load(0, width=4)\nout.store(v.shuffle(0, 4), 0)"),
    "vector_slice_at_run_time": kernel("v = x.load(0, width=4)\nout.store(v[: x.dim(0)], 0)"),
    "vector_join_of_widths": kernel("out.store(x.load(0, width=4).join(x.load(4, width=2)), 0)"),
    "vector_join_of_three": kernel("v = x.load(0, width=4)\nout.store(v.join(v, v), 0)"),
    "vector_width_three": kernel("out.store(x.load(0, width=3), 0)"),
    "vector_too_few_scalars": kernel("out.store(SIMD[T, 4](x[0], x[1]), 0)"),
    "vector_cast_to_width": kernel("out.store(SIMD[T, 2](x.load(0, width=4)), 0)"),
    "vector_as_condition": kernel("v = x.load(0, width=4)\nif v > 0:\n    out[0] = 1.0"),
    "vector_count_of_numbers": kernel("out[0] = x.load(0, width=4).count().cast(T)"),
    "vector_take_of_floats": kernel("v = x.load(0, width=4)\nout.store(v.take(v), 0)"),
    "vector_iota_too_long": kernel("v = iota(int8, 8, 125)\nout[0] = v[0].cast(T)"),
    "bits_of_float": kernel("out[0] = popcount(x[0])"),
    "bits_of_number": kernel("out[0] = x[clz(5)]"),
    "wide_product_of_64_bits": kernel("out[0] = mul_wide(x.dim(0), 2).cast(T)"),
    "dot_of_float16": kernel("h = x.load(0, width=4).cast(float16)\nout[0] = dot2(0.0, h, h).reduce_add().cast(T)"),
    "dot_of_floats": kernel("out[0] = dot4(0, x.load(0, width=4), x.load(0, width=4)).cast(T)"),
    "dot_of_other_widths": kernel("out[0] = dot4(0, SIMD[int8, 4](1), SIMD[int8, 8](1)).reduce_add().cast(T)"),
    "dot_of_other_sums": kernel("out[0] = dot4(x[0], SIMD[int8, 4](1), SIMD[uint8, 4](1)).cast(T)"),
    "saturating_floats": kernel("out[0] = add_sat(x[0], x[1])"),
}


MEMORY = {
    "pointer_to_input_stored": kernel("p = x.pointer()\np[0] = 1.0"),
    "pointer_moved_to_input_stored": kernel("p = x.pointer() + 4\np.store(out.load(0, width=4), 1)"),
    "pointer_to_input_scattered": kernel("x.pointer().scatter(x.load(0, width=2), iota(int32, 2))"),
    "pointer_holds_another_type": kernel("p = out.pointer()\np[0] = Int32(1)"),
    "pointer_by_float": kernel("out[0] = x.pointer()[x[0]]"),
    "pointers_added": kernel("p = x.pointer() + x.pointer()"),
    "pointer_times_number": kernel("p = x.pointer() * 2"),
    "pointer_as_number": kernel("out[0] = x.pointer()"),
    "pointer_member": kernel("p = x.pointer()\nout[0] = p.lode(0)"),
    "pointer_parameter_of_another_type": kernel(
        "out[0] = f(x.pointer()).cast(T)", before="def f(p: Pointer[int32]):\n    return p[0]"
    ),
    "pointer_parameter_gets_tensor": kernel("out[0] = f(x)", before="def f(p: Pointer[T]):\n    return p[0]"),
    "pointer_becomes_number": kernel("p = x.pointer()\nfor i in range(x.dim(0)):\n    p = 3\nout[0] = p[0]"),
    "pointer_chosen": kernel("p = x.pointer() if x[0] > 0 else out.pointer()\nout[0] = p[0]"),
    "masked_load_wrong_mask": kernel("v = x.load(0, width=4)\nout.store(x.load(0, width=8, mask=v > 0), 0)"),
    "masked_load_number_as_mask": kernel("out.store(x.load(0, width=8, mask=1), 0)"),
    "other_without_mask": kernel("out.store(x.load(0, width=8, other=1), 0)"),
    "load_alignment": kernel("out.store(x.load(0, width=8, align=3), 0)"),
    "gather_by_floats": kernel("v = x.load(0, width=4)\nout.store(x.gather(v), 0)"),
    "scatter_widths": kernel("out.scatter(x.load(0, width=4), iota(int32, 8))"),
    "scatter_into_input": kernel("x.scatter(x.load(0, width=4), iota(int32, 4))"),
    "prefetch_locality": kernel("x.prefetch(0, locality=7)"),
    "atomic_ordering": kernel('atomic.add(out, 0, 1.0, ordering="strict")'),
    "atomic_load_ordering": kernel('out[0] = atomic.load(out, 0, ordering="release")'),
    "atomic_bits_of_float": kernel("atomic.and_(out, 0, 1.0)"),
    "atomic_of_input": kernel("atomic.add(x, 0, 1.0)"),
    "atomic_of_number": kernel("atomic.exchange(3, 0, 1.0)"),
    "atomic_value_type": kernel("atomic.max(out, 0, Int32(1))"),
}


LOOPS = {
    "vectorize_width": kernel("vectorize(x.dim(0), 3, lambda i, width: store(out, i, x[i]))"),
    "vectorize_value": kernel("vectorize(x.dim(0), 4, lambda i, width: x.load(i, width=width))"),
    "vectorize_body": kernel("vectorize(x.dim(0), 4, lambda i: store(out, i, x[i]))"),
    "tile_left_over": kernel("tile(x.dim(0), (8, 4), lambda i, size: store(out, i, x[i]))"),
    "tile_order": kernel("tile(x.dim(0), (1, 8), lambda i, size: store(out, i, x[i]))"),
    "chunks_value": kernel("parallel_chunks(x.dim(0), lambda low, high: x[low])"),
}


@pytest.mark.parametrize("name", [*LANES, *MEMORY, *LOOPS])
def test_mistake(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden(name, workplace.load({**LANES, **MEMORY, **LOOPS}[name]))
