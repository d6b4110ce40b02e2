"""Clusters of blocks: what is emitted for them, and grids that are none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.gpu_case import KERNELS, GpuCase
from support.gpu_cases_clusters import CASES

from einkorn.compiler.targets.nvptx import assemble, find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

BY_NAME: dict[str, GpuCase] = {case.name: case for case in CASES}


def model_on(device: Any, ref: DeviceRef, op: str) -> Any:
    row = TensorType(DType.int32, ["n"], ref)
    graph = Graph(
        "clusters", lambda x: ops.custom(op, ref, [x], [row]), [row], custom_extensions=[KERNELS / "clusters.py"]
    )
    return InferenceSession(devices=[device]).load(graph) if device is not None else InferenceSession().load(graph)


def test_ptx() -> None:
    artifact = BY_NAME["clusters histogram"].compile("sm_90a")
    asm = artifact.asm
    assert len(re.findall(r"barrier\.cluster\.arrive", asm)) == len(re.findall(r"barrier\.cluster\.wait", asm)) == 2
    assert "mapa.shared::cluster" in asm and "atom.relaxed.cluster.shared::cluster.add.u32" in asm, asm
    if find_ptxas() is not None:
        assemble(asm, artifact.target)
    alone = BY_NAME["clusters alone"].compile("sm_90a").asm
    assert "bar" in alone and "barrier.cluster" not in alone and "mapa" not in alone


@pytest.mark.parametrize("where", ["cpu", "sim"])
def test_a_grid_that_is_no_whole_clusters(where: str) -> None:
    device = Accelerator("sim") if where == "sim" else None
    model = model_on(device, DeviceRef.CPU() if device is None else DeviceRef.GPU(), "clusters::ring")
    for blocks, fits in ((4, True), (0, True), (6, False)):
        x = Buffer.from_numpy(np.zeros(48 * blocks, np.int32))
        given = x if device is None else x.to(device)
        if fits:
            assert model(given)[0].shape == (48 * blocks,)
            continue
        with pytest.raises(KernelError, match="clusters of 4 blocks along x, and its grid has 6") as caught:
            model(given)
        assert caught.value.code == "EK0830"


def test_threads_of_a_peer_are_named_by_their_blocks() -> None:
    device = Accelerator("sim", checks="all")
    row = TensorType(DType.int32, [128], DeviceRef.GPU())

    def forward(value: Any) -> Any:
        return ops.custom("wrong::neighbours", DeviceRef.GPU(), [value], [row], parameters={"first": 1})

    graph = Graph("wrong", forward, [row], custom_extensions=[KERNELS / "wrong_memory.py"])
    model = InferenceSession(devices=[device]).load(graph)
    with pytest.raises(KernelError, match="data race: unordered accesses to shared memory by two threads") as caught:
        model(Buffer.from_numpy(np.zeros(128, np.int32)).to(device))
    said = [label.text for label in caught.value.labels]
    assert sorted(said) == [
        "thread (0, 0, 0) of block (1, 0, 0) writes",
        "thread (31, 0, 0) of block (0, 0, 0) reads",
    ]
