"""What the handler of a signal raises while PyTorch registers an op reaches the caller."""

from __future__ import annotations

import contextlib
import signal
from types import FrameType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from einkorn.dsl import kernels_of

TEXT = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("signalled")
def signalled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] + 1)
"""


def test_exceptions_of_handlers_leave_a_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        raise TypeError("of the handler")

    def registering(*args: Any, **keywords: Any) -> Any:
        with contextlib.suppress(TypeError):  # as `inspect.getmodule` does, which PyTorch calls
            signal.raise_signal(signal.SIGALRM)
        return register_fake(*args, **keywords)

    register_fake = torch.library.register_fake
    monkeypatch.setattr(torch.library, "register_fake", registering)
    kernel, x = kernels_of(TEXT)["signalled"], torch.zeros(3)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(TypeError, match="of the handler"):
            kernel(x)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert np.array_equal(kernel(x), np.ones(3))
