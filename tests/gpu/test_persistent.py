"""What `gpu.work` refuses; that each tile is done once, by its block, is what `support.gpu_cases_persistent` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import harness

from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError

TEXT = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def block(out, x):
    for place in gpu.work({}):
        out[place] = x[place]

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(block, out, x, grid=2, block=1)
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("x.dim(0)", "gpu.work takes how many rows and columns of tiles there are"),
        ("(x.dim(0), 2, 3)", "gpu.work takes how many rows and columns of tiles there are"),
        ('(x.dim(0), x.dim(1)), order="diagonals"', "order= of gpu.work is 'grouped', 'rows', 'columns'"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: str, words: str) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(TEXT.format(arguments))
    types = [(DType.float32, (5, 7))]
    with pytest.raises(EinkornError) as refused:
        typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup("sm_90a"))
    assert refused.value.code == "EK0646" and words in str(refused.value)


def test_a_loop_without_tiles_takes_elements(tmp_path: Path) -> None:
    """The place of a tile is an index."""
    file = tmp_path / "kernel.py"
    file.write_text(TEXT.format("(x.dim(0), x.dim(1))"))
    types = [(DType.float32, (5, 7))]
    assert typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup("sm_90a")).functions
