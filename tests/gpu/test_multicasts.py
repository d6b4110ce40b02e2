"""Copies of a tile to all blocks of a cluster: the code, what is refused, and mistakes, each found at its line.

That results are right is what the cases `map-to-all` of `support.gpu_cases_maps` say.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness, ptx
from support.gpu_case import KERNELS
from support.gpu_cases_maps import to_all
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

BF16 = ml_dtypes.bfloat16
FILE = (KERNELS / "tensor_maps.py").read_text(encoding="utf-8")


def spec_of(folder: Path, before: str, after: str) -> Any:
    """The compile unit of a changed kernel, for 32 x 128 float32."""
    assert FILE.count(before) == 1, "what is changed stands once in the file"
    path = folder / "kernel.py"
    path.write_text(FILE.replace(before, after), encoding="utf-8")
    types = [[(DType.float32, shape)] for shape in ((32, 128), (2, 32, 128))]
    return harness.entry_of(path, "tensor_maps::to_all", types[0], {}, types[1])[0]


def copies_of(spec: Any, target: str) -> list[str]:
    program = typed_program(spec, lookup(target))
    every = [op for function in program.functions for op in walk(function.body)]
    return [op.attrs["copies"] for op in every if "copies" in op.attrs]


# *** the code ***


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ("sm_90a", "sm_100a"))
def test_the_code_is_assembled_without_spills(target: str, tmp_path: Path) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    asm = str(to_all(BF16, 40, 72).compile(target).asm)
    assert "mbarrier::complete_tx::bytes.multicast::cluster [" in asm and ".reqnctapercluster 2, 1, 1" in asm
    assert "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _" in asm
    assert "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64" in asm
    source.write_text(asm)
    command = [ptxas, "-v", f"--gpu-name={target}", str(source), f"--output-file={tmp_path / 'cubin'}"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, report


CALL = "arrive=full[at], multicast=True)"


@pytest.mark.parametrize(
    ("before", "after", "target", "words"),
    [
        (CALL, CALL, "sm_90a", "by a tensor map: boxes of 16 x 32, pieces exchanged within 128 bytes, to 2 blocks"),
        ("x.tile(row, k, (M, N)), " + CALL, f"x.tile(row, k, (M, N), fill=1.0), {CALL}", "sm_90a", "as fill= is not 0"),
        (CALL, CALL, "sm_90", "elements: sm_90 has no bulk copies"),
        (CALL, CALL, "host", ""),
    ],
)
def test_how_parts_are_copied(tmp_path: Path, before: str, after: str, target: str, words: str) -> None:
    found = copies_of(spec_of(tmp_path, before, after), target)
    assert [words in each for each in found] == [True] * bool(words), found


def changed(pattern: str, to: str) -> None:
    """Runs a case as PTX in which something was changed, and compares results."""
    case = to_all(np.float32, 40, 72)
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode())
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), "sm_90a", run, [*(array.copy() for array in case.inputs()), *outputs])
    case.check(outputs)


@pytest.mark.parametrize(
    ("pattern", "to", "message"),
    [
        (r"(\.multicast::cluster [^;]*, )(%rs\d+);", r"\g<1>7;", "names blocks that the cluster does not have"),
        (r"(\.multicast::cluster [^;]*, )(%rs\d+);", r"\g<1>1;", "announced bytes have not been copied"),
        (r"(arrive\.expect_tx[^;]*, )(%r\d+);", r"\g<1>2064;", "have not been copied"),
    ],
)
def test_the_interpreter_of_ptx_finds_mistakes(pattern: str, to: str, message: str) -> None:
    with pytest.raises(ptx.PtxError, match=message):
        changed(pattern, to)


# *** mistakes of authors ***


REFUSED = {
    "no barrier": (CALL, "multicast=True)", "EK0659"),
    "not known": ("multicast=True", "multicast=block == 0", "EK0646"),
    "an arrival that is not known": ("arrive(cluster=True)", "arrive(cluster=block == 0)", "EK0659"),
    "parts that are not equal": ("cluster=blocks,", "cluster=(blocks, 1, 3),", "EK0646"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    before, after, code = REFUSED[name]
    with pytest.raises(EinkornError) as refused:
        copies_of(spec_of(tmp_path, before, after), "sm_90a")
    assert refused.value.code == code, str(refused.value)


# What is replaced, by what, the codes of which one is reported, and a part of a line that is shown.
MISTAKES = {
    "no wait for the tile": (
        "        full[at].wait(phase)\n        t = gpu.load(held[at])\n        empty[at].arrive(cluster=True)",
        "        t = gpu.load(held[at])\n        empty[at].arrive(cluster=True)",
        "EK0740 EK0742 EK0643 EK0746",
        "held[at]",
    ),
    "no wait for a free stage": ("        empty[at].wait(phase - 1)\n        gpu", "        gpu", "EK0740", "held[at]"),
    "a stage is free for the own block alone": (
        *("        empty[at].arrive(cluster=True)\n        total", "        empty[at].arrive()\n        total"),
        *("EK0746", ".wait("),
    ),
    "too few arrivals are counted": (
        *("gpu.mbarrier(blocks, stages)", "gpu.mbarrier(1, stages)", "EK0740 EK0742 EK0643 EK0746", "[at]"),
    ),
    "a stage is free before it is read": (
        "        t = gpu.load(held[at])\n        empty[at].arrive(cluster=True)\n        total",
        "        empty[at].arrive(cluster=True)\n        t = gpu.load(held[at])\n        total",
        "EK0740",
        "held[at]",
    ),
    "a barrier of a block that has not made it": (
        "    gpu.cluster.sync()\n    for k in range(ceildiv(x.dim(1), N)):\n        at, phase",
        "    for k in range(ceildiv(x.dim(1), N)):\n        at, phase",
        "EK0740 EK0742 EK0746 EK0643",
        "[at]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_at_its_line(tmp_path: Path, name: str) -> None:
    before, after, codes, line = MISTAKES[name]
    spec_of(tmp_path, before, after)
    for seed in (None, *range(6)):
        try:
            on_sim(tmp_path / "kernel.py", seed)
        except EinkornError as error:
            assert error.code in codes.split(), str(error)
            assert any(line in text for text in str(error).split("\n") if "|" in text), str(error)
            return
    pytest.fail("no error")


def on_sim(file: Path, seed: int | None) -> Any:
    device = Accelerator("sim", like="sm_90a", seed=seed, checks="all")
    place = DeviceRef.from_device(device)
    given, made = (TensorType(DType.float32, shape, place) for shape in ((32, 128), (2, 32, 128)))
    graph = Graph(
        "multicasts",
        lambda v: ops.custom("tensor_maps::to_all", device=place, values=[v], out_types=[made])[0],
        [given],
        custom_extensions=[file],
    )
    x = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    return InferenceSession(devices=[device]).load(graph)(Buffer.from_numpy(x).to(device))[0].to_numpy()


def test_a_graph_on_a_simulated_gpu() -> None:
    x = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    assert np.array_equal(on_sim(KERNELS / "tensor_maps.py", 1), np.stack([x, 2 * x]))


@pytest.mark.parametrize("target", ("host", "sm_90a"))
def test_the_interpreter_finds_blocks_that_wait_for_each_other(tmp_path: Path, target: str) -> None:
    spec = spec_of(tmp_path, *MISTAKES["a stage is free for the own block alone"][:2])
    arrays = [np.ones((32, 128), np.float32), np.zeros((2, 32, 128), np.float32)]
    with pytest.raises(KernelError) as found:
        Interpreted(typed_program(spec, lookup(target)), spec).run(arrays, [], lambda site, values: None)
    assert found.value.code == "EK0746" and "128 threads wait" in str(found.value)
