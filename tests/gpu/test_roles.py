"""Roles of warps and barriers in shared memory: the code for them, what is refused, and which mistakes are found.

That results are right is what the cases of `support.gpu_cases_roles` say, where all GPU test kernels are run.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness
from support.gpu_case import KERNELS
from support.gpu_cases_roles import CASES, handed, product, tripled

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register

def thread(out, x):
    i = gpu.thread_idx.x
    if gpu.block_idx.x == 1: out[0, 0] = x[0, 0]
    def nothing():
        pass
{}

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(thread, out, x, grid=1, block=96{})
"""
FIRST = 9  # line of the text


def written(folder: Path, text: str, more: str = "") -> Path:
    path = folder / "kernel.py"
    path.write_text(HEAD.format("\n".join(f"    {line}" for line in text.split("\n")), more))
    return path


IN_ROLE = "def one():\n    {}\ngpu.roles(a=(one, 1), b=(nothing, 2))"
TILE = "t = gpu.load(x.tile(0, 0, (32, 32)))\ndef one():\n    t.store(out.tile(0, 0, (32, 32)))\ngpu.roles(a=(one, 3))"
COPY = "gpu.copy_async(s, x{}, arrive={})"
REFUSED = {
    "too few warps": ("gpu.roles(a=(nothing, 1), b=(nothing, 1))", 0, "EK0658"),
    "none": ("gpu.roles()", 0, "EK0658"),
    "no warps": ("gpu.roles(a=nothing)", 0, "EK0658"),
    "zero warps": ("gpu.roles(a=(nothing, 0), b=(nothing, 3))", 0, "EK0658"),
    "warps of the running program": ("gpu.roles(a=(nothing, x.dim(0) + i), b=(nothing, 2))", 0, "EK0658"),
    "another thing": ("gpu.roles(a=(3, 3))", 0, "EK0658"),
    "twice": ("gpu.roles(a=(nothing, 3))\ngpu.roles(a=(nothing, 3))", 1, "EK0658"),
    "within a role": (IN_ROLE.format("gpu.roles(c=(nothing, 1))"), 1, "EK0658"),
    "what is returned": ("def one():\n    return 3\ngpu.roles(a=(one, 3))", 2, "EK0658"),
    "some of the threads": ("if i < 5:\n    gpu.roles(a=(nothing, 3))", 1, "EK0620"),
    "registers of one": ("gpu.roles(a=(nothing, 1, 40), b=(nothing, 2))", 0, "EK0658"),
    "a tile of the block": (TILE, 2, "EK0658"),
    "a barrier apart": (IN_ROLE.format("if gpu.thread_idx.x < 5: gpu.barrier()"), 1, "EK0620"),
    "a tile apart": (IN_ROLE.format("if gpu.thread_idx.x < 5: gpu.load(x.tile(0, 0, (16, 16)))"), 1, "EK0620"),
    "a barrier of roles": (IN_ROLE.format("gpu.barrier(id=15, threads=32)"), 1, "EK0642"),
    "a cluster": (IN_ROLE.format("gpu.cluster.sync()"), 1, "EK0658"),
    "barriers made in a role": (IN_ROLE.format("gpu.mbarrier(1)"), 1, "EK0658"),
    "no arrivals": ("gpu.mbarrier(0)", 0, "EK0659"),
    "arrivals of the running program": ("gpu.mbarrier(x.dim(0) + i)", 0, "EK0659"),
    "all of several": ("b = gpu.mbarrier(1, 2)\nb.wait(0)", 1, "EK0659"),
    "one of one": ("b = gpu.mbarrier(1)\nb[0].wait(0)", 1, "EK0659"),
    "too far": ("b = gpu.mbarrier(1, 2)\nb[2].arrive()", 1, "EK0659"),
    "a copy to no barrier": (
        "s = gpu.shared[float32](16, 16)\n" + COPY.format(".tile(0, 0, (16, 16))", 3),
        1,
        "EK0659",
    ),
    "a copy of elements": (
        "b = gpu.mbarrier(1)\ns = gpu.shared[float32](4)\n" + COPY.format("[0, 0:4]", "b"),
        2,
        "EK0659",
    ),
}  # fmt: skip


LOOPS = {
    "for": "for k in range(x.dim(0)):\n    gpu.roles(a=(nothing, 1), b=(nothing, 2))",
    "while": "k = 0\nwhile k < x.dim(0):\n    gpu.roles(a=(nothing, 1), b=(nothing, 2))\n    k += 1",
    "if": "if x.dim(0) > 3:\n    gpu.roles(a=(nothing, 1), b=(nothing, 2))",
}


@pytest.mark.parametrize("name", LOOPS)
def test_roles_within_control_flow_of_the_whole_block(tmp_path: Path, name: str) -> None:
    types = [(DType.float32, (32, 32))]
    text = LOOPS[name] + "\nout[0, i % 32] = x[0, 0]"
    program = typed_program(harness.entry_of(written(tmp_path, text), "op", types, {}, types)[0], lookup("sm_90a"))
    roles = [op.attrs["role"] for op in walk(program.functions[0].body) if op.attrs.get("role")]
    assert roles == ["a"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    text, line, code = REFUSED[name]
    types = [(DType.float32, (32, 32))]
    spec = harness.entry_of(written(tmp_path, text), "op", types, {}, types)[0]
    with pytest.raises(EinkornError) as refused:
        typed_program(spec, lookup("sm_90a"))
    error = refused.value
    assert (error.code, error.place.line if error.place else 0) == (code, FIRST + line), str(error)


def test_a_role_of_several_warps_is_refused_where_a_block_has_one_barrier(tmp_path: Path) -> None:
    path = written(tmp_path, "def one():\n    gpu.barrier()\ngpu.roles(a=(one, 2), b=(nothing, 1))")
    path.write_text(path.read_text().replace("block=96", "block=192"))
    types = [(DType.float32, (32, 32))]
    with pytest.raises(EinkornError) as refused:
        typed_program(harness.entry_of(path, "op", types, {}, types)[0], lookup("gfx942"))
    assert refused.value.code == "EK0611"


# *** code ***


def test_the_code_of_roles() -> None:
    ptx = str(tripled(np.float32, 40, 700, N=512, M=16, stages=2).compile("sm_90a").asm)
    assert ptx.count("mbarrier.init") == 4
    assert "mbarrier.arrive.expect_tx.release" in ptx
    assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" in ptx
    assert "bar.warp.sync" in ptx
    assert "cp.async.bulk.tensor.2d" in str(tripled(np.float32, 40, 256).compile("sm_90a").asm)
    assert "mbarrier" not in str(tripled(np.float32, 40, 256).compile("sm_80").asm)


def test_roles_move_registers_where_the_target_can() -> None:
    case = product(ml_dtypes.bfloat16, 70, 40, 200)
    ptx = str(case.compile("sm_90a").asm)
    assert re.search(r"\.maxnreg 248", ptx) and "setmaxnreg.dec.sync.aligned.u32 40" in ptx and "wgmma" in ptx
    assert "setmaxnreg" not in str(case.compile("sm_80").asm)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ("sm_90a", "sm_100a", "sm_120a"))
def test_nothing_is_spilled(target: str, tmp_path: Path) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in CASES:
        source.write_text(str(case.compile(target).asm))
        command = [ptxas, "-v", f"--gpu-name={target}", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, (case, report)
        assert "setmaxnreg" not in report, report


@pytest.mark.parametrize(
    ("arrive", "words"),
    [(True, "by a tensor map: boxes of 16 x 64;"), (False, "pieces of 16 bytes: not in bulk, as a")],
)
def test_how_a_role_copies(tmp_path: Path, arrive: bool, words: str) -> None:
    end = ", arrive=b)" if arrive else ").wait()"
    text = f"b, s = gpu.mbarrier(1), gpu.shared[float32](16, 64)\n{IN_ROLE}"
    file = written(tmp_path, text.format(f"gpu.copy_async(s, x.tile(0, 0, (16, 64)){end}"))
    types = [(DType.float32, (32, 128))]
    program = typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup("sm_90a"))
    found = [op.attrs["copies"] for f in program.functions for op in walk(f.body) if "copies" in op.attrs]
    assert [each.startswith(words) for each in found] == [True], found


# *** mistakes ***

FILE = (KERNELS / "roles.py").read_text(encoding="utf-8")
FULL, EMPTY = (
    "full[k % stages].wait(k // stages)\n            t",
    "empty[k % stages].wait(k // stages - 1)\n            gpu",
)
LAST = "            full[at].wait(k // stages)\n            out"
# The op, what is replaced, by what, the codes of which one is reported, and a part of a line that is shown.
MISTAKES = {
    "a consumer does not wait": ("tripled", FULL, "t", "EK0740 EK0742 EK0746", "t = gpu.load"),
    "a producer does not wait": ("tripled", EMPTY, "gpu", "EK0740 EK0743 EK0746 EK0643", "[k % stages]"),
    "an arrival for a free stage is missing": (
        "tripled",
        "            empty[k % stages].arrive()\n            (t",
        "            (t",
        "EK0746",
        ".wait(",
    ),
    "the copy does not arrive": ("tripled", ", arrive=full[k % stages])", ").wait()", "EK0746", ".wait("),
    "too many arrivals are counted": (
        "tripled",
        "gpu.mbarrier(1, stages)",
        "gpu.mbarrier(2, stages)",
        "EK0746",
        ".wait(",
    ),
    "too few arrivals are counted": (
        *("tripled", "warps * gpu.warp_size, stages", "gpu.warp_size, stages", "EK0740 EK0643"),
        "empty[k % stages]",
    ),
    "a phase too far": ("tripled", FULL, FULL.replace("// stages)", "// stages + 1)"), "EK0643", ".wait("),
    "a phase too early": (
        "tripled",
        "empty[k % stages].wait(k // stages - 1)",
        "empty[k % stages].wait(k // stages - 2)",
        "EK0643",
        ".wait(",
    ),
    "the wrong stage": (
        "tripled",
        "gpu.load(held[k % stages])",
        "gpu.load(held[(k + 1) % stages])",
        "EK0740 EK0742 EK0743",
        "t = gpu.load",
    ),
    "a stage is free before it is read": (
        *("tripled", "            t = gpu.load(held[k % stages])\n            empty[k % stages].arrive()\n"),
        "            empty[k % stages].arrive()\n            t = gpu.load(held[k % stages])\n",
        *("EK0740", "t = gpu.load"),
    ),
    "elements are handed on without a wait": ("handed", LAST, "            out", "EK0740 EK0742", "ring[1, k % stages"),
    "one lane arrives": (
        "handed",
        "+ 1\n            full[at].arrive()",
        "+ 1\n            if gpu.lane_idx == 0: full[at].arrive()",
        "EK0746",
        ".wait(",
    ),
    "a store behind the arrival": (
        *("handed", "            ring[1, at, gpu.thread_idx.x] = v + 1\n            full[stages + at].arrive()\n"),
        "            full[stages + at].arrive()\n            ring[1, at, gpu.thread_idx.x] = v + 1\n",
        *("EK0740 EK0742", "ring[1,"),
    ),
}  # fmt: skip


def on_sim(file: Path, op: str, seed: int | None, x: Any) -> Any:
    device = Accelerator("sim", like="sm_90a", seed=seed, checks="all")
    type_ = TensorType(DType.float32, x.shape, DeviceRef.from_device(device))
    graph = Graph(
        "roles",
        lambda v: ops.custom(f"roles::{op}", device=type_.device, values=[v], out_types=[type_])[0],
        [type_],
        custom_extensions=[file],
    )
    return InferenceSession(devices=[device]).load(graph)(Buffer.from_numpy(x).to(device))[0].to_numpy()


INPUTS = {"tripled": np.ones((16, 576), np.float32), "handed": np.ones(256, np.float32)}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_at_its_line(tmp_path: Path, name: str) -> None:
    op, before, after, codes, line = MISTAKES[name]
    assert FILE.count(before) == 1, "the text of a mistake stands once in the file"
    path = tmp_path / "kernel.py"
    path.write_text(FILE.replace(before, after), encoding="utf-8")
    for seed in (None, *range(6)):
        try:
            on_sim(path, op, seed, INPUTS[op])
        except EinkornError as error:
            assert error.code in codes.split(), str(error)
            assert any(line in text for text in str(error).split("\n") if "|" in text), str(error)
            return
    pytest.fail("no error")


@pytest.mark.parametrize("target", ("host", "sm_90a"))
def test_the_interpreter_and_a_cpu_find_deadlocks(tmp_path: Path, target: str) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(FILE.replace("            empty[k % stages].arrive()\n            (t", "            (t"))
    types = [(DType.float32, (16, 576))]
    spec = harness.entry_of(path, "roles::tripled", types, {}, types)[0]
    arrays = [np.ones((16, 576), np.float32), np.zeros((16, 576), np.float32)]
    with pytest.raises(KernelError) as found:
        Interpreted(typed_program(spec, lookup(target)), spec).run(arrays, [], lambda site, values: None)
    line = found.value.place.line if found.value.place else 0
    assert found.value.code == "EK0746" and ".wait(" in path.read_text().split("\n")[line - 1]


def test_two_ops_with_roles_in_one_graph() -> None:
    x = np.arange(16 * 70, dtype=np.float32).reshape(16, 70)
    for device in (CPU(), Accelerator("sim", checks="all")):
        type_ = TensorType(DType.float32, x.shape, DeviceRef.from_device(device))

        def tripled_(v: Any, type_: TensorType = type_) -> Any:
            return ops.custom("roles::tripled", device=type_.device, values=[v], out_types=[type_])[0]

        graph = Graph("two", lambda v: tripled_(tripled_(v)), [type_], custom_extensions=[KERNELS / "roles.py"])
        model = InferenceSession(devices=[device]).load(graph)
        assert np.array_equal(model(Buffer.from_numpy(x).to(device))[0].to_numpy(), 9 * x)


def test_handed_elements_go_through_all_roles() -> None:
    case = handed(np.float32, 0)
    case.check(case.run())
