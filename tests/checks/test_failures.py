"""A failing kernel is an exception and nothing else: the model, the session, the pool and other calls stay sound."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

from .conftest import model_of

LARGE = np.arange(400_000, dtype=np.float32)
IDS = np.arange(400_000)


def spoilt(at: int, value: int = 400_000) -> np.ndarray[Any, Any]:
    ids = IDS.copy()
    ids[at] = value
    return ids


def test_the_next_call_works() -> None:
    model = model_of("put", LARGE, IDS.astype(np.int32))
    for round_ in range(60):
        ids = spoilt(round_ * 6007 % 400_000, -1 - round_).astype(np.int32)
        with pytest.raises(KernelError) as caught:
            model(LARGE, ids)
        assert (caught.value.tensor, caught.value.index) == ("out", -1 - round_)
        if round_ % 20 == 0:
            assert (model(LARGE, IDS.astype(np.int32))[0].to_numpy() == LARGE).all()


def test_everything_fails_at_once() -> None:
    """Every task of every thread fails: one failure is reported, and nothing waits for anything."""
    model = model_of("put", LARGE, IDS.astype(np.int32))
    for _ in range(30):
        with pytest.raises(KernelError):
            model(LARGE, np.full(400_000, -7, np.int32))
    assert (model(LARGE, IDS.astype(np.int32))[0].to_numpy() == LARGE).all()


def test_failures_of_several_threads() -> None:
    """Sessions side by side, some of which fail, each with its own failure."""
    wrong: list[str] = []

    def work(number: int) -> None:
        model = model_of("put", LARGE, IDS.astype(np.int32))
        for round_ in range(15):
            bad = (number + round_) % 2 == 0
            ids = (spoilt(100 * number, -1000 - number) if bad else IDS).astype(np.int32)
            try:
                result = model(LARGE, ids)[0].to_numpy()
                if bad or not (result == LARGE).all():
                    wrong.append(f"thread {number}: no failure, or a wrong result")
            except KernelError as error:
                if not bad or error.index != -1000 - number:
                    wrong.append(f"thread {number}: {error}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_later_ops_do_not_run() -> None:
    """In a graph of several ops the first failure ends the call; inputs stay as they were."""
    cpu = DeviceRef.CPU()
    kernels = model_of.__globals__["KERNELS"]
    types = [TensorType(DType.float32, ["n"], cpu), TensorType(DType.int32, ["n"], cpu)]

    def forward(x: Any, ids: Any) -> Any:
        placed = ops.custom("put", cpu, [x, ids])[0]
        return ops.custom("asserted", cpu, [placed * 2])[0]

    model = InferenceSession().load(Graph("two", forward=forward, input_types=types, custom_extensions=[kernels]))
    x, ids = np.float32([1, 2, 3]), np.int32([2, 0, 1])
    assert model(x, ids)[0].to_numpy().tolist() == [4, 6, 2]
    with pytest.raises(KernelError) as caught:
        model(x, np.int32([2, 5, 1]))
    assert (caught.value.op, caught.value.code) == ("put", "EK0703")
    with pytest.raises(KernelError) as caught:
        model(-x, ids)
    assert (caught.value.op, caught.value.code) == ("asserted", "EK0701")
    assert x.tolist() == [1, 2, 3] and model(x, ids)[0].to_numpy().tolist() == [4, 6, 2]


def test_zero_divisors_and_nan() -> None:
    a, b = np.int32([7, -7, 3]), np.int32([2, 0, 3])
    assert model_of("quotients", a, b)(a, b)[0].to_numpy().tolist() == [3, 0, 1]
    with pytest.raises(KernelError) as caught:
        model_of("quotients", a, b, checks="all")(a, b)
    assert caught.value.code == "EK0704"
    x = np.float32([[1, 4], [9, -1]])
    assert np.isnan(model_of("roots", x)(x)[0].to_numpy()[1, 1])
    with pytest.raises(KernelError) as caught:
        model_of("roots", x, checks="safe+nan")(x)
    error = caught.value
    assert (error.code, error.op, error.tensor, error.index) == ("EK0705", "roots", "out", (1, 1))
    assert not any("holds a NaN already" in note for note in error.notes)
    given = np.float32([[1, np.nan]])
    with pytest.raises(KernelError) as caught:
        model_of("roots", given, checks="off+nan")(given)
    assert any("'input0' of the call holds a NaN already, first at [0, 1]" in note for note in caught.value.notes)
    zero = np.float32([[0, 1]])
    assert np.isinf(model_of("inverses", zero, checks="safe+nan")(zero)[0].to_numpy()[0, 0])
    with pytest.raises(KernelError) as caught:
        model_of("inverses", zero, checks="all+inf")(zero)
    assert caught.value.index == (0, 0) and np.isinf(caught.value.value)
    assert caught.value.to_dict()["value"] == "inf"


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_nan_in_masked_scattered_and_stepped_stores(interpret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only lanes that are stored count, and the index is that of the lane."""
    monkeypatch.setenv("EINKORN_INTERPRET", interpret)
    x = np.float32([1, 4, 9, 200, 16, 25, 36, 49] * 2)
    order = np.arange(16)[::-1].copy()
    assert model_of("masked_roots", x, order, checks="safe+nan")(x, order)[0].to_numpy()[4] == 10
    x[13] = -1
    with pytest.raises(KernelError) as caught:
        model_of("masked_roots", x, order, checks="safe+nan")(x, order)
    assert (caught.value.code, caught.value.tensor, caught.value.index) == ("EK0705", "out", (13,))
    x[13], x[14] = 1, np.inf
    with pytest.raises(KernelError) as caught:
        model_of("masked_roots", x, order, checks="safe+inf")(x, order)
    assert (caught.value.index, caught.value.value) == ((1,), np.inf)
    y = np.float32([1, 1, 1, 1, 1, 1, -4, 1])
    with pytest.raises(KernelError) as caught:
        model_of("stepped_roots", y, checks="off+nan")(y)
    assert caught.value.index == (5,)


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_nan_in_stores_of_vectors(interpret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_INTERPRET", interpret)
    x = np.arange(24, dtype=np.float16).reshape(3, 8)
    result = model_of("vector_roots", x, checks="safe+nan")(x)[0].to_numpy()
    assert np.allclose(result, np.sqrt(x), rtol=1e-3)
    x[1, 6] = -4
    with pytest.raises(KernelError) as caught:
        model_of("vector_roots", x, checks="all+nan")(x)
    assert (caught.value.code, caught.value.index) == ("EK0705", (1, 6)) and np.isnan(caught.value.value)


def test_off_leaves_asserts_out_and_raises_in() -> None:
    x = np.float32([1, -1])
    assert model_of("asserted", x, checks="off")(x)[0].to_numpy().tolist() == [1, -1]
    for checks in ("off", "safe", "all"):
        with pytest.raises(KernelError, match=r"ValueError in op 'raised': negative: -1\.0"):
            model_of("raised", x, checks=checks)(x)
