"""Products by warps with roles, on sm_90a: which these are, and what they give, against float64.

They run in the interpreter of PTX and on a simulated GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from support import graphs
from support.gpu_case import KERNELS

from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.machine_code import resources
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.graph import Accelerator, Buffer, Graph, InferenceSession, TensorType, ops
from einkorn.graph.drawing.inspected import op_graph

from .test_tile_products import BF16, F16, GPU, check_product, drawn, on_ptx, result

TMA = "cp.async.bulk.tensor"


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@cache
def text_of(op: str, *inputs: str, target: str = "sm_90a") -> str:
    return op_graph(op, list(inputs), {}, target).code("asm", target)


SIZES = ((65, 72, 40), (63, 8, 264), (130, 136, 8), (20, 24, 1))


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_matmul_in_ptx(monkeypatch: pytest.MonkeyPatch, m: int, n: int, k: int) -> None:
    """Of sizes that end within tiles; 264 elements of the inner axis are more steps than there are stages."""
    a, b = drawn(BF16, m, k), drawn(BF16, k, n)
    check_product(result(on_ptx(monkeypatch, "sm_90a"), ops.matmul, a, b), a, b)


def test_matmul_by_a_transposed_matrix_in_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = drawn(F16, 65, 136), drawn(F16, 70, 136)
    found = result(on_ptx(monkeypatch, "sm_90a"), lambda x, y: x @ y.transpose(0, 1), a, b)
    check_product(found, a, b.T)


def test_batches_in_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_ptx(monkeypatch, "sm_90a")
    a, b = drawn(BF16, 2, 3, 33, 72), drawn(BF16, 2, 3, 72, 40)
    check_product(result(device, ops.matmul, a, b), a, b)
    turned = np.ascontiguousarray(b.swapaxes(-1, -2))
    check_product(result(device, lambda x, y: x @ y.transpose(-1, -2), a, turned), a, b)
    rows, matrix = drawn(BF16, 2, 33, 72), drawn(BF16, 72, 40)
    check_product(result(device, ops.matmul, rows, matrix), rows, matrix)


def test_what_follows_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, bias, more = drawn(BF16, 40, 136), drawn(BF16, 136, 24), drawn(BF16, 24), drawn(BF16, 40, 24)
    device = on_ptx(monkeypatch, "sm_90a")
    found = result(device, lambda a, b, bias, more: ops.relu(a @ b + bias) - more, a, b, bias, more)
    wide = [array.astype(np.float64) for array in (a, b, bias, more)]
    exact = wide[0] @ wide[1]
    wanted = np.maximum(exact + wide[2], 0) - wide[3]
    size = np.abs(exact) + np.abs(wide[2]) + np.abs(wide[3])
    assert (np.abs(found.astype(np.float64) - wanted) <= 0.02 * size + 1e-3).all()


def test_one_model_takes_both_ways_of_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are known at the call say whether hardware has maps of the matrices; an empty axis has none."""
    device = on_ptx(monkeypatch, "sm_90a")
    types = [TensorType(DType.bfloat16, shape, GPU) for shape in (["m", "k"], ["k", "n"])]
    with Graph("product", input_types=types) as graph:
        graph.output(ops.matmul(*graph.inputs))
    model = InferenceSession(devices=[device]).load(graph)
    for m, n, k in ((65, 24, 72), (20, 70, 33), (33, 17, 72), (20, 24, 0), (0, 8, 8), (40, 0, 8), (7, 7, 7)):
        a, b = drawn(BF16, m, k), drawn(BF16, k, n)
        (given,) = model.execute(*(Buffer.from_numpy(array).to(device) for array in (a, b)))
        check_product(np.array(given.to_numpy()), a, b)


@pytest.mark.parametrize("seed", (0, 1, 2, 3))
def test_matmul_on_a_simulated_gpu(seed: int) -> None:
    """With all checks, in four orders of the threads."""
    device = Accelerator("sim", like="sm_90a", seed=seed, checks="all")
    a, b = drawn(BF16, 33, 264), drawn(BF16, 264, 40)
    check_product(result(device, ops.matmul, a, b), a, b)


def large(device: Any, a: Any, b: Any, **tiles: int) -> Any:
    """The product by tiles of 128 x 128, or of others."""
    files = [str(KERNELS / "role_products.py")]
    shape = [a.shape[0], b.shape[1]]
    types = [TensorType(DType.from_numpy(each.dtype), each.shape, GPU) for each in (a, b)]
    out = TensorType(types[0].dtype, shape, GPU)
    forward = lambda x, y: ops.custom("roles_of_tiles::product", GPU, [x, y], [out], tiles)[0]  # noqa: E731
    graph = Graph("large", forward, types, custom_extensions=files)
    model = InferenceSession(devices=[device]).load(graph)
    return np.array(model(*(Buffer.from_numpy(each).to(device) for each in (a, b)))[0].to_numpy())


@pytest.mark.parametrize(("m", "n", "k"), [(130, 136, 72), (63, 40, 328), (33, 17, 17)])
def test_large_tiles_in_ptx(monkeypatch: pytest.MonkeyPatch, m: int, n: int, k: int) -> None:
    """The last ones have no map: elements are copied."""
    a, b = drawn(BF16, m, k), drawn(BF16, k, n)
    check_product(large(on_ptx(monkeypatch, "sm_90a"), a, b), a, b)


@pytest.mark.parametrize(("m", "n", "k"), [(130, 264, 328), (65, 200, 72)])
def test_wide_tiles_in_ptx(monkeypatch: pytest.MonkeyPatch, m: int, n: int, k: int) -> None:
    """Two groups of four warps multiply; the first case has more steps than stages."""
    a, b = drawn(BF16, m, k), drawn(BF16, k, n)
    check_product(large(on_ptx(monkeypatch, "sm_90a"), a, b, N=256, warps=8), a, b)


@pytest.mark.parametrize("tiles", ({}, {"N": 256, "warps": 8}), ids=str)
def test_large_tiles_on_a_simulated_gpu(tiles: dict[str, int]) -> None:
    a, b = drawn(BF16, 130, 136), drawn(BF16, 136, 72)
    check_product(large(Accelerator("sim", like="sm_90a", seed=1, checks="all"), a, b, **tiles), a, b)


# *** the code ***


@pytest.mark.parametrize("lead", ("", "3, "))
def test_tiles_are_copied_by_maps(lead: str) -> None:
    inputs = (f"float16[{lead}m, k]", f"float16[{lead}k, n]")
    text = text_of("matmul", *inputs)
    assert TMA in text and "wgmma.mma_async" in text and "mbarrier.try_wait" in text
    if not lead:
        assert TMA not in text_of("matmul", *inputs, target="sm_90")


def test_no_role_copies_what_has_no_map() -> None:
    """Rows of 33 elements, and operands that are computed as they are read."""
    role = re.compile(r"\.(req|max)ntid 160\b")  # a warp more than multiply
    assert role.search(text_of("matmul", "bfloat16[64, 64]", "bfloat16[64, 64]"))
    assert not role.search(text_of("matmul", "bfloat16[64, 33]", "bfloat16[33, 64]"))
    types = [TensorType(DType.bfloat16, shape, GPU) for shape in ((64, 64), (64, 64))]
    assert not role.search(Graph("scaled", lambda a, b: (a * 2.0) @ b, types).code("asm", "sm_90a"))


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("sizes", ("m, k | k, n", "4096, 4096 | 4096, 4096"))
def test_nothing_is_spilled(sizes: str) -> None:
    left, right = sizes.split(" | ")
    text = text_of("matmul", f"float16[{left}]", f"float16[{right}]")
    kernels = resources(text, lookup("sm_90a"))
    assert kernels and not any(each.spilled for each in kernels.values())


def test_the_loop_has_no_barrier_of_the_block() -> None:
    """Warps wait for stages; all threads wait for each other only before the first step."""
    text = text_of("matmul", "float16[4096, 4096]", "float16[4096, 4096]")
    kernel = next(each for each in text.split(".visible .entry")[1:] if TMA in each)
    behind = kernel[kernel.index("wgmma.mma_async") :]
    loop = re.search(r"(?s)wgmma\.mma_async.*?wgmma\.wait_group\.sync\.aligned 1;.*?bra", behind)
    assert loop is not None and "bar.sync" not in loop[0]
