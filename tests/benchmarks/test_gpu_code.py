"""Built-in ops stay in registers on GPUs, as ptxas reports: those that docs/gpu-code.md counts, and more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gpu_code
import pytest
from support import graphs

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.machine_code import resources
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.graph.drawing.inspected import op_graph

# An op, the types of its inputs, its parameters.
OPS: dict[str, tuple[str, Sequence[str], Mapping[str, Any]]] = {
    **{name: (row.op, row.inputs, row.parameters) for name, row in gpu_code.ROWS.items()},
    "matmul of any sizes": ("matmul", ["float16[m, k]", "float16[k, n]"], {}),
    "matmul of batches": ("matmul", ["bfloat16[8, 512, 64]", "bfloat16[8, 64, 512]"], {}),
    "mean float64": ("mean", ["float64[m, n]"], {"axis": -1}),
    "argmax of columns": ("argmax", ["int32[m, n]"], {"axis": 0}),
    "argsort": ("argsort", ["float32[m, 300]"], {}),
    "conv2d": ("conv2d", ["float32[2, 33, 33, 16]", "float32[3, 3, 16, 32]"], {}),
    "gelu bf16": ("gelu", ["bfloat16[n]"], {}),
    "layer_norm bf16": ("layer_norm", ["bfloat16[m, n]", "bfloat16[n]", "bfloat16[n]"], {"epsilon": 1e-5}),
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_no_op_spills_registers(target: str) -> None:
    spilled = {}
    for name, (op, inputs, parameters) in OPS.items():
        kernels = resources(op_graph(op, inputs, parameters, target).code("asm", target), lookup(target))
        assert kernels, name
        spilled[name] = sum(each.spilled for each in kernels.values())
    assert not any(spilled.values()), spilled
