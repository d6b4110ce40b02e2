"""Products with scales: what is refused, and what `--stage typed` says; results are cases of `gpu_cases_scaled`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import harness
from support.gpu_cases_scaled import CASES

from einkorn.compiler.ir.printer import print_program
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError

TEXT = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float16, float32, gpu, register
from einkorn.dsl import float8_e4m3fn, float8_e8m0fnu

def tiles(out, x):
    a = gpu.shared[{elements}](32, {depth})
    b = gpu.shared[{elements}]({depth}, 32)
    s = gpu.shared[{scales}](32, 2)
    t = gpu.shared[{scales}](2, 32)
    sums = gpu.tile[float32](32, 32)
    sums = gpu.dot(a, b, sums, scales={given})
    sums.store(out.tile(0, 0, (32, 32)))

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(tiles, out, x, grid=1, block=64)
"""
PLAIN = {"elements": "float8_e4m3fn", "scales": "float8_e8m0fnu", "depth": "64", "given": "(s, t)"}
REFUSED = {
    "one matrix": ({"given": "s"}, "EK0653"),
    "numbers": ({"given": "(1.0, 2.0)"}, "EK0653"),
    "half floats": ({"elements": "float16"}, "EK0655"),
    "scales of another dtype": ({"scales": "float32"}, "EK0655"),
    "parts of blocks": ({"depth": "48"}, "EK0654"),
    "another size": ({"depth": "128"}, "EK0654"),
    "exchanged": ({"given": "(t, s)"}, "EK0654"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    change, code = REFUSED[name]
    path = tmp_path / "kernel.py"
    path.write_text(TEXT.format(**(PLAIN | change)))
    types = [(DType.float32, (32, 32))]
    with pytest.raises(EinkornError) as refused:
        typed_program(harness.entry_of(path, "op", types, {}, types)[0], lookup("sm_90a"))
    error = refused.value
    assert (error.code, error.place.line if error.place else 0) == (code, 11), str(error)


@pytest.mark.parametrize("target", ["sm_120a", "gfx950"])
def test_the_typed_program_says_that_elements_are_multiplied(target: str) -> None:
    program = CASES[0].compile(target).program
    assert "product=elements: products with scales are multiplied one by one" in print_program(program)
