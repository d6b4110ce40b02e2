"""Mistakes planted in kernels of tiles: each is refused when it is compiled, or reported by a simulated GPU, at a line.

A mistake is a text of `kernels/tile_steps.py` and what is written instead: a wait or a barrier too few, another
stage, a ragged edge, another's tile. An error has to name a line with one of the texts that the mistake says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gpu_case import KERNELS

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator, Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

FILE = KERNELS / "tile_steps.py"
SHAPES = {
    "product": ((40, 72), (72, 48)),
    "attention": ((40, 32), (70, 32), (70, 32)),
    "turned": ((40, 70),),
    "views": ((40, 20), (20, 50)),
}
RESULTS = {"product": (40, 48), "attention": (40, 32), "turned": (70, 40), "views": (40, 50)}
SEEDS = 4
BARRIER = "        gpu.barrier()\n"


@dataclass(frozen=True)
class Mistake:
    """A mistake in a kernel.

    Attributes:
        op: the op in the file.
        before, after: the text, which stands once in the file, and what is written instead.
        lines: texts of which one stands in a line that the error names.
        codes: what the error may be.
    """

    op: str
    before: str
    after: str
    lines: tuple[str, ...]
    codes: str


def _of(op: str, before: str, after: str, *lines: str, codes: str) -> Mistake:
    return Mistake(op, before, after, lines, codes)


WAIT = "        group.wait(pending=STAGES - 2)\n"
FETCH = "        group = fetch(k + STAGES - 1)\n"
DOT = "        sums = gpu.dot(left[k % STAGES], right[k % STAGES], sums)\n"
COPIES = ("gpu.copy_async(left", "gpu.copy_async(right", "gpu.dot(left")
STORE = "    sums.store(out.tile(row, column, (M, N)))"
SCORES = "        scores = gpu.dot(queries"
JOINED = "        sums = gpu.dot(weights"
OF_KEYS = ("gpu.copy_async(keys", "gpu.dot(queries")
OF_VALUES = ("gpu.copy_async(values", "gpu.dot(weights")
ELEMENT = "other[at % 32, at // 32] = kept[at // 32, at % 32]"
RESULT = "out[row, column] = other[at // 32, at % 32]"
BIG = "LayoutTensor(out).tile(row, column, (32, 32)).tile(thread // 8, thread % 8, (4, 4)).copy_from(sums)"
OWN = ("own_a.copy_from", "own_b.copy_from", "copy_dram_to_sram")
GRID = "    ctx.launch(turned_block, out, x, grid=(ceildiv(x.dim(1), 32), ceildiv(x.dim(0), 32)), block=64)"

MISTAKES = {
    # a product with three stages
    "no wait": _of("product", WAIT, "", *COPIES, "group", codes="EK0743 EK0622"),
    "a wait for one group less": _of("product", "pending=STAGES - 2", "pending=STAGES - 1", *COPIES, codes="EK0743"),
    "no barrier behind the wait": _of("product", WAIT + BARRIER, WAIT, *COPIES, codes="EK0740 EK0742 EK0743"),
    "a barrier before the wait": _of("product", WAIT + BARRIER, BARRIER + WAIT, *COPIES, codes="EK0740 EK0742 EK0743"),
    "the next stage of the left": _of(
        "product", "gpu.dot(left[k % STAGES]", "gpu.dot(left[(k + 1) % STAGES]", *COPIES, codes="EK0743 EK0740 EK0742"
    ),
    "the next stage of the right": _of(
        "product", ", right[k % STAGES], sums", ", right[(k + 1) % STAGES], sums", *COPIES, codes="EK0743 EK0740 EK0742"
    ),
    "the stage before": _of(
        "product", "gpu.dot(left[k % STAGES]", "gpu.dot(left[(k + 2) % STAGES]", *COPIES, codes="EK0743 EK0740 EK0742"
    ),
    "a copy into the stage that is read": _of(
        "product", "fetch(k + STAGES - 1)", "fetch(k + STAGES)", *COPIES, codes="EK0743 EK0740 EK0742"
    ),
    "a stage too few at the start": _of(
        "product", "for k in range(STAGES - 1):", "for k in range(STAGES - 2):", *COPIES, codes="EK0743 EK0742 EK0740"
    ),
    "a copy before the barrier": _of(
        "product", BARRIER + FETCH, FETCH + BARRIER, *COPIES, codes="EK0740 EK0742 EK0743"
    ),
    "no wait at the end": _of("product", "    group.wait()\n    sums", "    sums", "gpu.commit", codes="EK0622"),
    "memory for a stage too few": _of(
        "product", "gpu.shared[a.dtype](STAGES, M", "gpu.shared[a.dtype](STAGES - 1, M", *COPIES, codes="EK0703 EK0741"
    ),
    "both into the left": _of(
        "product",
        "gpu.copy_async(right[k % STAGES], b.tile(k, column, (K, N)))",
        "gpu.copy_async(left[k % STAGES], b.tile(k, column, (M, K)))",
        *COPIES,
        codes="EK0740 EK0743 EK0742",
    ),
    "no copy of the right": _of(
        "product",
        "        gpu.copy_async(right[k % STAGES], b.tile(k, column, (K, N)))\n",
        "",
        "gpu.dot(left",
        codes="EK0742",
    ),
    "a store of the first column": _of(
        "product", STORE, STORE.replace("column", "0"), "sums.store", codes="EK0740 EK0706"
    ),
    "a store of the first row": _of("product", STORE, STORE.replace("(row", "(0"), "sums.store", codes="EK0740 EK0706"),
    "a store by half of the row": _of(
        "product", STORE, STORE.replace("(row", "(row // 2"), "sums.store", codes="EK0740"
    ),
    "a barrier for some": _of(
        "product",
        WAIT + BARRIER,
        WAIT + "        if gpu.thread_idx.x < 32:\n    " + BARRIER,
        "gpu.barrier",
        codes="EK0620",
    ),
    "a product for some": _of(
        "product", DOT, "        if gpu.thread_idx.x < 40:\n    " + DOT, "gpu.dot(left", codes="EK0620"
    ),
    # attention
    "no wait for keys": _of("attention", "        first.wait(pending=1)\n", "", *OF_KEYS, codes="EK0743 EK0622"),
    "no wait for values": _of("attention", "        second.wait()\n", "", *OF_VALUES, "commit", codes="EK0743 EK0622"),
    "both may be pending": _of("attention", "first.wait(pending=1)", "first.wait(pending=2)", *OF_KEYS, codes="EK0743"),
    "no barrier behind the keys": _of("attention", BARRIER + SCORES, SCORES, *OF_KEYS, codes="EK0740 EK0742 EK0743"),
    "no barrier behind the values": _of(
        "attention", BARRIER + JOINED, JOINED, *OF_VALUES, codes="EK0740 EK0742 EK0743"
    ),
    "no barrier at the end of a step": _of(
        "attention", "        high = new\n" + BARRIER, "        high = new\n", *OF_VALUES, codes="EK0740 EK0743"
    ),
    "values over the keys": _of(
        "attention",
        "gpu.copy_async(values, v",
        "gpu.copy_async(keys, v",
        *OF_KEYS,
        *OF_VALUES,
        codes="EK0740 EK0742 EK0743",
    ),
    "one wait for both at the end": _of(
        "attention",
        "        first.wait(pending=1)\n        gpu.barrier()\n",
        "        gpu.barrier()\n",
        *OF_KEYS,
        codes="EK0743 EK0740",
    ),
    "a store of the first queries": _of(
        "attention",
        "store(out.tile(row, 0, (M, D)))",
        "store(out.tile(0, 0, (M, D)))",
        ".store(out",
        codes="EK0740 EK0706",
    ),
    # through shared memory
    "no barrier behind a store": _of(
        "turned",
        "    tile.store(kept)\n    gpu.barrier()\n",
        "    tile.store(kept)\n",
        "tile.store",
        "gpu.load(kept.tile",
        codes="EK0740",
    ),
    "a store while others read": _of(
        "turned",
        "reduce(0, Max)\n    gpu.barrier()\n    (tile",
        "reduce(0, Max)\n    (tile",
        "gpu.load(kept.tile",
        ".store(kept)",
        codes="EK0740",
    ),
    "no barrier before elements": _of(
        "turned",
        "largest).store(kept)\n    gpu.barrier()\n",
        "largest).store(kept)\n",
        ".store(kept)",
        ELEMENT,
        codes="EK0740",
    ),
    "no barrier behind elements": _of(
        "turned", f"{ELEMENT}\n    gpu.barrier()\n", f"{ELEMENT}\n", ELEMENT, RESULT, codes="EK0740"
    ),
    "no store": _of("turned", "    tile.store(kept)\n", "", "gpu.load(kept.tile", codes="EK0742"),
    "a row too far": _of(
        "turned", ELEMENT, ELEMENT.replace("kept[at // 32", "kept[at // 32 + 1"), "other[at", codes="EK0703 EK0741"
    ),
    "no edge of columns": _of(
        "turned",
        "if row < out.dim(0) and column < out.dim(1):",
        "if row < out.dim(0):",
        "out[row",
        codes="EK0703 EK0741 EK0740",
    ),
    "no edge of rows": _of(
        "turned",
        "if row < out.dim(0) and column < out.dim(1):",
        "if column < out.dim(1):",
        "out[row",
        codes="EK0703 EK0741",
    ),
    "an edge with one more": _of(
        "turned", "row < out.dim(0) and", "row <= out.dim(0) and", "out[row", codes="EK0703 EK0741"
    ),
    "blocks for whole tiles alone": _of(
        "turned", GRID, GRID.replace("ceildiv(x.dim(0), 32)", "x.dim(0) // 32"), "turned(out:", codes="EK0706"
    ),
    "another's element": _of(
        "turned", RESULT, RESULT.replace("out[row", "out[row - row % 2"), "out[row", codes="EK0740"
    ),
    # views
    "no wait for a copy": _of(
        "views",
        "        group.wait()\n        gpu.barrier()\n        for",
        "        gpu.barrier()\n        for",
        "async",
        "group",
        "own_a",
        codes="EK0622 EK0743",
    ),
    "no barrier behind copies": _of(
        "views", "        group.wait()\n        gpu.barrier()\n", "        group.wait()\n", *OWN, codes="EK0740 EK0743"
    ),
    "no barrier behind sums": _of(
        "views", "own_b)\n        gpu.barrier()\n", "own_b)\n", *OWN, codes="EK0740 EK0742 EK0743"
    ),
    "rows of another tile": _of(
        "views",
        "copy_dram_to_sram(right, LayoutTensor(b).tile(k, column, (8, 32)), (2, 32))",
        "copy_dram_to_sram(right.tile(0, 0, (4, 32)), LayoutTensor(b).tile(2 * k, column, (4, 32)), (2, 32))",
        *OWN,
        "LayoutTensor(out)",
        "outer_product",
        codes="EK0742",
    ),
    "another thread's tile": _of(
        "views", BIG, BIG.replace("thread // 8,", "thread // 16,"), "LayoutTensor(out)", codes="EK0740 EK0706"
    ),
    "the tile of another block": _of(
        "views", BIG, BIG.replace("tile(row,", "tile(0,"), "LayoutTensor(out)", codes="EK0740 EK0706"
    ),
    "the whole tile by each": _of(
        "views",
        ".tile(thread // 8, thread % 8, (4, 4)).copy_from(sums)",
        ".tile(0, 0, (4, 4)).copy_from(sums)",
        "LayoutTensor(out)",
        codes="EK0740 EK0706",
    ),
}


def run(file: Path, op: str, seed: int | None) -> Any:
    """The result of an op on a simulated GPU that checks everything."""
    device = Accelerator("sim", like="sm_90a", seed=seed, checks="all")
    place = DeviceRef.from_device(device)
    arrays = [np.random.default_rng(k).standard_normal(shape).astype(np.float32) for k, shape in enumerate(SHAPES[op])]
    types = [TensorType(DType.float32, array.shape, place) for array in arrays]
    result = TensorType(DType.float32, RESULTS[op], place)

    def forward(*values: Any) -> Any:
        return ops.custom(f"steps::{op}", device=place, values=values, out_types=[result])[0]

    graph = Graph("steps", forward=forward, input_types=types, custom_extensions=[file])
    model = InferenceSession(devices=[device]).load(graph)
    return model(*(Buffer.from_numpy(array).to(device) for array in arrays))[0].to_numpy(), arrays


def expected(op: str, arrays: list[Any]) -> Any:
    wide = [array.astype(np.float64) for array in arrays]
    if op == "attention":
        scores = wide[0] @ wide[1].T / np.sqrt(32)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True) @ wide[2]
    if op == "turned":
        padded = np.zeros((64, 96))
        padded[:40, :70] = wide[0]
        tiles = padded.reshape(2, 32, 3, 32)
        return (tiles - tiles[:, :16].max(1, keepdims=True)).reshape(64, 96)[:40, :70].T
    return wide[0] @ wide[1]


@pytest.mark.parametrize("op", SHAPES)
def test_without_a_mistake_there_is_no_report(op: str) -> None:
    for seed in (None, 1):
        found, arrays = run(FILE, op, seed)
        assert np.abs(found - expected(op, arrays)).max() < 1e-4


def lines_of(error: EinkornError) -> list[str]:
    """The lines of the author's file that an error names."""
    return [line for line in str(error).split("\n") if "|" in line]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_at_its_line(tmp_path: Path, name: str) -> None:
    mistake = MISTAKES[name]
    text = FILE.read_text(encoding="utf-8")
    assert text.count(mistake.before) == 1, "the text of a mistake stands once in the file"
    path = tmp_path / "kernel.py"
    path.write_text(text.replace(mistake.before, mistake.after), encoding="utf-8")
    for seed in (None, *range(SEEDS)):
        try:
            run(path, mistake.op, seed)
        except EinkornError as error:
            assert error.code in mistake.codes.split(), str(error)
            assert any(part in line for line in lines_of(error) for part in mistake.lines), str(error)
            return
    pytest.fail("no error")


def test_how_many_are_planted() -> None:
    assert len(MISTAKES) == 46
