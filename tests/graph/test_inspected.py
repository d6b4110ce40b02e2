"""Code of graphs and built-in ops for targets whose devices are not here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.ptx_joined import assemble_all

from einkorn.cli import application as cli
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.machine_code import disassemble
from einkorn.compiler.targets.nvptx import find_ptxas, find_tool
from einkorn.dsl.diagnostics.errors import CompileError, TargetError
from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph

HOST, GPU = DeviceRef.CPU(), DeviceRef.GPU()
TARGETS = ("sm_80", "sm_90a", "sm_100a", "gfx942")
OPS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "matmul": (["float16[m, 64]", "float16[64, n]"], {}),
    "softmax": (["float32[m, n]"], {"axis": -1}),
    "conv2d": (["float32[2, 9, 9, 4]", "float32[3, 3, 4, 8]"], {}),
    "sum": (["float64[m, n]"], {"axis": 0}),
    "gelu": (["bfloat16[n]"], {}),
    "argmax": (["int32[m, n]"], {}),
    "layer_norm": (["float32[m, 32]", "float32[32]", "float32[32]"], {"epsilon": 1e-5}),
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def check_code(text: str, target: str) -> None:
    """The text is assembly of a kernel for a target."""
    if target.startswith("gfx"):
        assert f"amdgcn-amd-amdhsa--{target}" in text and "s_endpgm" in text and ".amdhsa_kernel" in text
        return
    assert f".target {target}" in text and ".visible .entry" in text


def check_ptx(texts: list[str], target: str) -> None:
    """ptxas takes the texts, where it is there."""
    if not target.startswith("gfx") and find_ptxas() is not None:
        assemble_all(texts, lookup(target))


@pytest.mark.parametrize("target", TARGETS)
def test_built_in_ops(target: str) -> None:
    texts = []
    for name, (inputs, parameters) in OPS.items():
        texts.append(op_graph(name, inputs, parameters, target).code("asm", target))
        check_code(texts[-1], target)
    check_ptx(texts, target)


def layer(device: DeviceRef = HOST) -> Graph:
    types = [TensorType(DType.float32, shape, device) for shape in (["m", 64], [64, 32])]

    def forward(x: Any, w: Any) -> Any:
        y = ops.softmax(ops.gelu(x @ w) + ops.constant(np.ones(32), DType.float32, device))
        (z,) = ops.cond(ops.sum(y, None, keepdims=False) > 1.0, [y.type], lambda: y * 2.0, lambda: y)
        return z

    return Graph("layer", forward, types)


@pytest.mark.parametrize(("device", "target"), [(HOST, "gfx942"), (GPU, "sm_80")], ids=str)
def test_graphs(device: DeviceRef, target: str) -> None:
    text = layer(device).code("asm", target)
    check_code(text, target)
    check_ptx([text], target)
    assert text.count(".visible .entry" if target == "sm_80" else ".amdhsa_kernel") >= 3


def test_stages() -> None:
    graph = Graph("small", lambda x: ops.exp(x) * 2.0, [TensorType(DType.float32, ["n"], GPU)])
    assert "module" in graph.code("mlir", "sm_90a") and "define" in graph.code("llvm", "sm_90a")
    assert "ek_entry" in graph.code("asm") and "launch" in graph.code(target="sm_80")
    with pytest.raises(TargetError, match="unknown target"):
        graph.code("asm", "sm_9")
    with pytest.raises(CompileError) as caught:
        graph.code("code")
    assert caught.value.code == "EK0608"


def test_graphs_of_several_devices() -> None:
    graph = Graph("both", lambda x: ops.exp(x.to(GPU)).to(HOST) * 2.0, [TensorType(DType.float32, ["n"], HOST)])
    text = graph.code("asm", "gfx942")
    assert text.count("// segment ") == 2 and "// segment 0 of 2, on gpu:0" in text
    assert text.count("amdgcn-amd-amdhsa--gfx942") >= 1 and "ek_entry" in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ops.softmx"], "EK0647", "softmax"),
        (["ops.softmax"], "EK0648", "--input"),
        (["ops.softmax", "--input", "float3[m]"], "EK0648", "float32"),
        (["ops.softmax", "--input", "float32"], "EK0648", "is not a type of a tensor"),
        (["ops.softmax", "--input", "float32[m]", "--param", "axes=1"], "EK0648", "axes"),
        (["ops.softmax", "--input", "float32[m]", "--param", "axis=3"], "EK0422", "out of range"),
        (["ops.softmax", "--input", "float32[m]", "--target", "sm_9"], "EK0401", "sm_90"),
        (["ops.exp", "--input", "float32[m]", "--op", "exp"], "EK0649", "--op"),
        (["graphs.py:layr"], "EK0647", "layer"),
        (["graphs.py:number"], "EK0647", "'number' is not a graph"),
        (["graphs.py:layer", "--input", "float32[m]"], "EK0649", "--input"),
        (["kernels.py", "--input", "float32[m]"], "EK0649", "--input"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_graphs(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert cli.run(["inspect", *arguments]) == 1
    reported = capsys.readouterr().err
    assert (code in reported or code == "EK0401") and words in reported and "click" not in reported


def write_graphs(folder: Path) -> None:
    (folder / "graphs.py").write_text(
        "from einkorn.graph import DeviceRef, DType, Graph, TensorType, ops\n\n"
        "number = 3\n"
        'layer = Graph("layer", ops.exp, [TensorType(DType.float32, ["n"], DeviceRef.GPU())])\n'
    )


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write_graphs(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        return cli.run(["inspect", *arguments, "--stage", "asm"])

    assert run("graphs.py:layer", "--target", "sm_80") == 0
    check_code(capsys.readouterr().out, "sm_80")
    assert run("ops.softmax", "--input", "float32[m, n]", "--param", "axis=0", "--target", "gfx942") == 0
    check_code(capsys.readouterr().out, "gfx942")


# *** machine code ***


def test_machine_code_of_ops_and_graphs() -> None:
    if find_tool("ptxas") is None or find_tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed")
    text = op_graph("add", ["float32[m]", "float32[m]"], {}, "sm_90a").code("sass", "sm_90a")
    assert "FADD" in text and "LDG.E.128" in text and ", line " in text
    assert "EXIT" in layer(GPU).code("sass", "sm_80")


def test_machine_code_that_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match="gfx942 is none") as other:
        op_graph("add", ["float32[m]"] * 2, {}, "gfx942").code("sass", "gfx942")
    assert other.value.code == "EK0602" and "--stage asm" in str(other.value.hint)
    for missing, package in (("ptxas", "nvidia-cuda-nvcc"), ("nvdisasm", "nvidia-cuda-nvdisasm")):
        actual = lambda tool, missing=missing: None if tool == missing else tool  # noqa: E731
        monkeypatch.setattr("einkorn.compiler.targets.machine_code.find_tool", actual)
        with pytest.raises(TargetError, match=f"{missing} is not installed") as error:
            op_graph("add", ["float32[m]"] * 2, {}, "sm_90a").code("sass", "sm_90a")
        assert package in str(error.value.hint)


def test_old_disassemblers_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\necho nvdisasm fatal: unknown architecture >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setattr("einkorn.compiler.targets.machine_code.find_tool", lambda _: str(tool))
    with pytest.raises(TargetError, match="nvdisasm cannot read the code for sm_90a: nvdisasm fatal"):
        disassemble(b"no code", lookup("sm_90a"))
