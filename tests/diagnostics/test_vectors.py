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
    "saturating_floats": kernel("out[0] = add_sat(x[0], x[1])"),
}


@pytest.mark.parametrize("name", LANES)
def test_mistake(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    golden(name, workplace.load(LANES[name]))
