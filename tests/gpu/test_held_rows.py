"""Rows that the threads of a GPU hold: right for every length and alignment, read once, and in registers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def normal(x: Any, g: Any) -> Any:
    return ops.softmax(x), ops.layer_norm(x, g, g, epsilon=1e-5), ops.rms_norm(x, g, eps=1e-5) * 2.0


def model(shape: Any, device: Any, dtype: DType = DType.float32) -> Any:
    ref = DeviceRef.CPU() if isinstance(device, CPU) else DeviceRef.GPU()
    with Graph("rows", input_types=[TensorType(dtype, shape, ref), TensorType(dtype, shape[1:], ref)]) as graph:
        graph.output(*normal(*graph.inputs))
    return InferenceSession(devices=[device]).load(graph)


def agree(loaded: tuple[Any, Any], device: Any, x: Array, g: Array) -> None:
    actual = loaded[0].execute(*(Buffer.from_numpy(a).to(device) for a in (x, g)))
    for given, wanted in zip(actual, loaded[1].execute(x, g), strict=True):
        np.testing.assert_allclose(given.to_numpy(), wanted.to_numpy(), 1e-5, 1e-5)


def test_rows_whose_length_is_known_at_the_call() -> None:
    device = Accelerator("sim", seed=1)
    loaded = model(("m", "n"), device), model(("m", "n"), CPU())
    random = np.random.default_rng(1)
    for n in (1, 33, 1024, 1030):
        agree(loaded, device, *(random.standard_normal(s).astype(np.float32) for s in ((2, n), (n,))))


@pytest.mark.parametrize("n", [36, 1026])
def test_rows_of_a_known_length(n: int) -> None:
    device = Accelerator("sim")
    random = np.random.default_rng(n)
    arrays = (random.standard_normal(s).astype(np.float32) for s in ((3, n), (n,)))
    agree((model((3, n), device), model((3, n), CPU())), device, *arrays)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_nothing_is_spilled(target: str, tmp_path: Path) -> None:
    cases: list[tuple[str, list[str], dict[str, Any]]] = [
        ("softmax", ["float32[m, n]"], {"axis": -1}),
        ("softmax", ["float32[4096, 1024]"], {"axis": -1}),
        ("softmax", ["bfloat16[4096, 1024]"], {"axis": -1}),
        ("layer_norm", ["float32[m, 8192]", "float32[8192]", "float32[8192]"], {"epsilon": 1e-5}),
        ("rms_norm", ["float64[m, 1024]", "float64[1024]"], {"eps": 1e-5}),
    ]
    for number, (name, inputs, parameters) in enumerate(cases):
        text = tmp_path / f"{number}.ptx"
        text.write_text(op_graph(name, inputs, parameters, target).code("asm", target))
        command = [str(find_ptxas()), "-v", f"-arch={target}", str(text), "-o", str(tmp_path / "out")]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
        assert spilled and set(spilled) == {("0", "0")}, (name, report)
        assert re.search(r"ld\.global(\.nc)?\.v", text.read_text()), (name, "no wide loads")
