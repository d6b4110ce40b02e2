"""Mistakes with types that are only stored and cast: each with its golden text."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent

import pytest


def kernel(body: str, dtype: str = "S") -> str:
    before = 'S = TypeVar("S", bound=Storable)\n'
    signature = f'out: OutputTensor[{dtype}, "n"], x: InputTensor[{dtype}, "n"]'
    return f'{before}\n\n@register("op")\ndef op({signature}):\n{indent(dedent(body).strip(), "    ")}\n'


FLOATS = {
    "storage_sum": kernel("foreach(out, lambda i: x[i] + x[i])"),
    "storage_times_number": kernel("foreach(out, lambda i: x[i] * 2.0)"),
    "storage_comparison": kernel("foreach(out, lambda i: x[i] if x[i] > 0 else S(1))"),
    "storage_negation": kernel("foreach(out, lambda i: -x[i])"),
    "storage_function": kernel("foreach(out, lambda i: exp(x[i]))"),
    "storage_isnan": kernel("foreach(out, lambda i: S(0) if isnan(x[i]) else x[i])"),
    "storage_reduction": kernel("out[0] = x.load(0, width=4).reduce_add()"),
    "storage_mixed": kernel("foreach(out, lambda i: (x[i].cast(float32) * x[i]).cast(S))"),
    "storage_stored_wide": kernel("foreach(out, lambda i: x[i].cast(float32) * 2)"),
    "storage_atomic": kernel("atomic_add(out, 0, x[0])"),
    "storage_number_too_exact": kernel("foreach(out, lambda i: S(17))"),
    "storage_bitcast": kernel("foreach(out, lambda i: bitcast(bitcast(x[i], uint16), S))"),
    "storage_numeric_bound": kernel("foreach(out, lambda i: x[i])", "T"),
}
INTS = {
    "int4_sum": kernel("foreach(out, lambda i: x[i] + 1)"),
    "int4_number_too_large": kernel("foreach(out, lambda i: 8)"),
    "int4_shift": kernel("foreach(out, lambda i: x[i] >> 1)"),
    "int4_condition": kernel("foreach(out, lambda i: x[i] if x[i] else 0)"),
    "int4_popcount": kernel("foreach(out, lambda i: popcount(x[i]))"),
}


@pytest.mark.parametrize("name", FLOATS | INTS)
def test_mistake(name: str, workplace, golden: Callable[[str, object], None]) -> None:  # type: ignore[no-untyped-def]
    text, dtype = (FLOATS[name], "float8_e4m3fn") if name in FLOATS else (INTS[name], "int4")
    golden(name, workplace.load(text, dtype))
