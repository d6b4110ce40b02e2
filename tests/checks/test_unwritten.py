"""`checks="all"` finds uninitialised elements, of every dtype, and what was made of such memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import Buffer, BufferType, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

KERNELS = Path(__file__).parent / "unwritten_kernels.py"
HOST = DeviceRef.CPU()


def custom(op: str, *values: Any, **parameters: Any) -> Any:
    return ops.custom(op, device=HOST, values=list(values), parameters=parameters)[0]


def model(forward: Any, dtype: DType, *, checks: str | None = "all", interpret: bool = False) -> Any:
    kind = TensorType(dtype, ["n", "m"], HOST)
    graph = Graph("left", forward=forward, input_types=[kind], custom_extensions=[str(KERNELS)])
    return InferenceSession(checks=checks, interpret=interpret).load(graph)


def ones(dtype: DType, shape: tuple[int, ...]) -> Any:
    return Buffer.from_numpy(np.ones(shape).astype(dtype.to_numpy()))


@pytest.mark.parametrize("dtype", [d for d in DType if d.bits <= 64], ids=str)
def test_every_dtype(dtype: DType) -> None:
    """Whatever is stored elsewhere: no value of any dtype is taken for a gap."""
    forward = lambda x: custom("most", x)  # noqa: E731
    with pytest.raises(KernelError) as caught:
        model(forward, dtype)(ones(dtype, (4, 7)))
    error = caught.value
    assert (error.code, error.tensor, error.index, error.op) == ("EK0706", "out", (2, 5), "most")
    assert error.place is not None and error.place.file == str(KERNELS)
    whole = model(lambda x: custom("most", x, left_out=9), dtype)
    for byte in (0x00, 0x5A, 0xA5, 0xFF):
        memory = np.full((4, 7), byte, np.uint8).repeat(dtype.to_numpy().itemsize)
        given = memory.view(dtype.to_numpy()).reshape(4, 7) if dtype is not DType.bool else np.full((4, 7), byte > 90)
        whole(Buffer.from_numpy(given))


@pytest.mark.parametrize("interpret", [False, True])
def test_other_levels_do_not_look(interpret: bool) -> None:
    x = np.arange(28, dtype=np.float32).reshape(4, 7)
    for checks in (None, "off", "safe"):
        result = model(lambda x: custom("most", x), DType.float32, checks=checks, interpret=interpret)(x)[0].to_numpy()
        assert (np.delete(result, 5, 1) == np.delete(x, 5, 1)).all()
    with pytest.raises(KernelError, match="'out' of op 'most'"):
        model(lambda x: custom("most", x), DType.float32, interpret=interpret)(x)


def test_the_environment_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CHECKS", "all")
    with pytest.raises(KernelError, match="is uninitialised"):
        model(lambda x: custom("most", x), DType.int32, checks=None)(np.zeros((4, 7), np.int32))


def test_what_is_made_of_a_gap() -> None:
    """An op between reads the gap: no element of the result is a gap, and 2 of them depend on one."""
    x = np.ones((4, 7), np.float32)
    for follow in (lambda y: custom("doubled", y), lambda y: ops.relu(custom("doubled", y)) + 1.0):
        with pytest.raises(KernelError, match="depends on uninitialised memory") as caught:
            model(lambda x, follow=follow: follow(custom("most", x)), DType.float32)(x)
        assert caught.value.index == (2, 5)
    fine = model(lambda x: custom("doubled", custom("most", x, left_out=9)), DType.float32)
    assert (fine(x)[0].to_numpy() == 2).all()


def test_views_and_sizes_that_change() -> None:
    """Each call looks anew: with other sizes, and through the code for transposed inputs."""
    left = model(lambda x: custom("most", x), DType.int16)
    for rows in (2, 1, 0):
        x = np.arange(rows * 7, dtype=np.int16).reshape(rows, 7)
        assert (left(x)[0].to_numpy() == x).all()
        assert (left(np.asfortranarray(x))[0].to_numpy() == x).all()
    for rows in (3, 5):
        for order in "CF":
            with pytest.raises(KernelError) as caught:
                left(np.zeros((rows, 7), np.int16, order=order))
            assert caught.value.index == (2, 5) and str(caught.value).count("more of") == (rows > 3)


def test_what_is_changed_in_place_is_changed_once() -> None:
    kinds = [BufferType(DType.int32, ["n", "m"], HOST), TensorType(DType.int32, ["n", "m"], HOST)]

    def forward(total: Any, x: Any) -> Any:
        ops.inplace_custom("counted", device=HOST, values=[total, x])
        return ops.buffer_load(total)

    graph = Graph("count", forward=forward, input_types=kinds, custom_extensions=[str(KERNELS)])
    count = InferenceSession(checks="all").load(graph)
    total, x = np.zeros((2, 3), np.int32), np.arange(6, dtype=np.int32).reshape(2, 3)
    for round_ in range(1, 4):
        assert (count(total, x)[0].to_numpy() == x * round_).all()
        assert (total == x * round_).all()


def test_additions_in_any_order_are_no_gap() -> None:
    x = np.random.default_rng(0).standard_normal((5000, 3)).astype(np.float32)
    gathered = model(lambda x: custom("gathered", x), DType.float32)
    for _ in range(5):
        np.testing.assert_allclose(gathered(x)[0].to_numpy(), x.sum(0) + x[0], rtol=1e-3, atol=1e-2)


def test_prints_come_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "says.py"
    file.write_text(
        "from einkorn.dsl import *\n@register('says')\ndef says(out: OutputTensor[float32, 'n m'], "
        "x: InputTensor[float32, 'n m']):\n    print('once')\n    foreach(out, lambda i: x[i])\n"
    )
    kind = TensorType(DType.float32, ["n", "m"], HOST)
    graph = Graph("g", forward=lambda x: custom("says", x), input_types=[kind], custom_extensions=[str(file)])
    InferenceSession(checks="all").load(graph)(np.ones((2, 2), np.float32))
    assert capsys.readouterr().out == "once\n"


def test_ml_dtypes_are_compared_by_bits() -> None:
    x = np.full((4, 7), np.nan, ml_dtypes.bfloat16)
    assert np.isnan(model(lambda x: custom("doubled", x), DType.bfloat16)(x)[0].to_numpy().astype(np.float32)).all()
