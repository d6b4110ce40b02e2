"""Kernels of the user's, branches and loops with tensors; random numbers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor, default_device

from einkorn import functional as F
from einkorn import random
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError
from einkorn.graph import CPU, Accelerator, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.eager.programs import COUNTS
from einkorn.graph.loading.background import BACKGROUND

FILE = Path(__file__).parent / "kernels.py"


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("eager_test_kernels", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kernels_take_tensors(kernels: ModuleType) -> None:
    x = Tensor.constant([[1.0, 2.0], [3.0, 4.0]])
    y = kernels.eager_scaled(x)
    assert isinstance(y, Tensor) and y.tolist() == [[2, 4], [6, 8]]
    assert kernels.eager_scaled(x, scale=3).tolist() == [[3, 6], [9, 12]]
    with F.lazy():
        later = kernels.eager_scaled(x + 1) * 2
        assert not later.real
    assert later.tolist() == [[8, 12], [16, 20]]
    low, high = kernels.eager_both(x, 5 - x)
    assert low.tolist() == [[1, 2], [2, 1]] and high.tolist() == [[4, 3], [3, 4]]
    kernels.eager_scaled(Tensor.ones([3, 2]))
    BACKGROUND.wait()
    before = dict(COUNTS)
    for n in (5, 17):
        assert kernels.eager_scaled(Tensor.ones([n, 2])).numpy().sum() == 4 * n
    assert before == COUNTS


def test_wrong_calls_of_kernels_are_those_of_arrays(kernels: ModuleType) -> None:
    x = Tensor.arange(5)
    wrong: dict[str, Callable[[], Any]] = {
        "EK0851": lambda: kernels.eager_scaled(x, 2.0),
        "EK0853": lambda: kernels.eager_scaled(x, out=np.empty(5, np.float32)),
        "EK0425": lambda: F.split(x),  # type: ignore[call-arg]
    }
    for code, call in wrong.items():
        with pytest.raises(EinkornError) as caught:
            call()
        assert caught.value.code == code and caught.value.place is not None and caught.value.place.file == __file__


def test_a_variable_that_a_kernel_reads(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor.constant([1.0, 2.0])
    with F.lazy():
        before = kernels.eager_shifted(x)
    assert kernels.eager_shifted(x).tolist() == [2, 3]
    monkeypatch.setattr(kernels, "SHIFT", 10)
    assert kernels.eager_shifted(x).tolist() == [11, 12] and before.tolist() == [2, 3]


def test_kernels_that_write_tensors(kernels: ModuleType) -> None:
    total, seen = Tensor.constant([1.0, 2.0]), None
    seen = total.numpy()
    with F.lazy():
        waiting = total * 10
    assert kernels.eager_axpy_into(total, 2.0, Tensor.constant([10.0, 20.0])) is None
    assert total.tolist() == [21, 42] and seen.tolist() == [1, 2] and waiting.tolist() == [10, 20]
    memory = np.zeros(2, np.float32)
    kernels.eager_axpy_into(Tensor.from_dlpack(memory), 1.0, total)
    assert memory.tolist() == [21, 42]
    assert F.inplace_custom("eager_axpy_into", CPU(), [total, 1.0, total + 0], custom_extensions=FILE) == []
    assert total.tolist() == [42, 84]


def test_kernels_by_name_and_their_errors(kernels: ModuleType) -> None:
    x = Tensor.constant([1.0, 2.0])
    [result] = F.custom("eager_limited", device=x.device, values=[x], out_types=[x.type], custom_extensions=FILE)
    assert result.tolist() == [1, 2]
    with pytest.raises(KernelError, match="too large") as caught:
        kernels.eager_limited(x * 25)
    assert caught.value.place is not None
    with F.lazy():
        later = kernels.eager_limited(x * 25)
        line = test_kernels_by_name_and_their_errors.__code__.co_firstlineno + 8
    with pytest.raises(KernelError, match="too large") as caught:
        _ = later.realize
    assert caught.value.place is not None and caught.value.place.line >= line - 2
    for call, code in (
        (lambda: F.custom("unknown", CPU(), [x]), "EK0440"),
        (lambda: kernels.eager_limited(Tensor.ones([2, 2])), "EK03"),
    ):
        with pytest.raises(EinkornError, match=code):
            call()


def test_branches_and_loops() -> None:
    x = Tensor.constant([1.0, 2.0, 3.0])
    [chosen] = F.cond(x.sum() > 3, None, lambda: x * 2, lambda: -x)
    assert chosen.tolist() == [2, 4, 6]
    last = F.while_loop((Tensor.constant(0, dtype=DType.int64), x), lambda k, y: k < 5, lambda k, y: (k + 1, y * 2))
    assert last[0].item() == 5 and last[1].tolist() == [32, 64, 96]
    with pytest.raises(EinkornError, match="EK0447"):
        F.while_loop((), lambda: True, lambda: ())
    with Graph("branches", input_types=[TensorType(DType.bool, [])]) as graph:
        constant = Tensor.constant([1.0, 2.0])
        graph.output(*F.cond(graph.inputs[0], [constant.type], lambda: F.exp(constant), lambda: F.negate(constant)))
    assert InferenceSession().load(graph)(np.array(False))[0].to_numpy().tolist() == [-1, -2]


def test_other_ops_that_have_to_do_with_elements(capfd: pytest.CaptureFixture[str]) -> None:
    x = Tensor.constant([1.0, 2.0])
    F.print(x, "label")
    assert "label" in "".join(capfd.readouterr())
    memory = F.buffer_create(x.type.as_buffer())
    F.buffer_store(memory, x)
    F.buffer_store_slice(memory, 7.0, [slice(0, 1)])
    kept = F.buffer_load(memory)
    memory[:] = 0
    assert kept.tolist() == [7, 2] and memory.tolist() == [0, 0]
    F.assert_same_device(x, kept)
    with pytest.raises(EinkornError):
        F.assert_same_device(x, x.to(Accelerator("sim")))
    assert F.transfer_to(x, CPU()) is x and F.constant([1, 2], DType.int8).tolist() == [1, 2]
    assert F.hann_window(4, device=CPU()).numpy().shape == (4,) and F.shape_to_tensor([2, 3]).tolist() == [2, 3]


def test_random_numbers_are_those_of_graphs_and_of_all_devices() -> None:
    def staged() -> list[object]:
        ops.random.set_seed(7)
        return [ops.random.normal([3, 5]), ops.random.uniform([4])]

    expected = [each.to_numpy() for each in InferenceSession().load(Graph("random", staged))()]
    for device in (CPU(), Accelerator("sim")):
        with default_device(device):
            random.set_seed(7)
            assert random.seed().item() == 7
            actual = [
                random.normal([3, 5], dtype=DType.float32),
                random.uniform([4], dtype=DType.float32),
            ]
            assert actual[0].device == device
        for tensor, wanted in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), wanted)


def test_random_numbers() -> None:
    random.set_seed(1)
    first, second = random.normal([1000]), random.normal([1000])
    assert abs(first.numpy().mean()) < 0.1 and abs(first.numpy().std() - 1) < 0.1
    assert (first.numpy() != second.numpy()).all()
    BACKGROUND.wait()
    before = dict(COUNTS)
    random.set_seed(1)
    with F.lazy():
        again = random.normal([1000])
        unused = random.normal([7])
        third = random.normal([5])
    np.testing.assert_array_equal(again.numpy(), first.numpy())
    assert third.numpy().shape == (5,) and not unused.real and before == COUNTS
    dtypes = (DType.float32, DType.bfloat16)
    for dtype in dtypes:
        _ = random.uniform([6], (-1, 3), dtype=dtype), random.normal([6], 2.0, 0.5, dtype=dtype)
    with Graph("random", input_types=[]) as graph:
        ops.random.set_seed(9)
        made = [
            f
            for d in dtypes
            for f in (ops.random.uniform([50], (-0.3, 0.7), dtype=d), ops.random.normal([50], 1.1, 0.3, dtype=d))
        ]
        graph.output(*made)
    expected = [each.to_numpy() for each in InferenceSession().load(graph)()]
    BACKGROUND.wait()
    before = dict(COUNTS)
    random.set_seed(9)
    actual = [
        f for d in dtypes for f in (random.uniform([50], (-0.3, 0.7), dtype=d), random.normal([50], 1.1, 0.3, dtype=d))
    ]
    for tensor, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), wanted)
    assert before == COUNTS
    assert random.xavier_uniform([30, 20]).numpy().max() <= (6 / 50) ** 0.5
    assert abs(random.kaiming_normal([100, 50]).numpy().std() - (2 / 50) ** 0.5) < 0.01
    assert random.xavier_normal([4, 4, 3, 3]).rank == 4 and random.kaiming_uniform([2, 3]).rank == 2
    dropped = random.dropout(Tensor.ones([1000]), 0.25).numpy()
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)} and 600 < (dropped > 0).sum() < 900
    assert random.bernoulli(Tensor.full([8], 1.0)).tolist() == [True] * 8
    for call in (
        lambda: random.normal([2], std=0),
        lambda: random.uniform([2], range=(1, 1)),
        lambda: random.uniform([2], range=(1, 2, 3)),  # type: ignore[arg-type]
        lambda: random.xavier_normal([3]),
    ):
        with pytest.raises(ValueError, match="EK0844"):
            call()
