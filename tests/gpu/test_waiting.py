"""Programs whose threads wait for each other through memory: right and quiet, and mistakes in them are found.

The programs lie in `kernels/waiting.py`; what is wrong with them, line by line, in `support.waiting_mistakes`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gpu_case import KERNELS
from support.waiting_mistakes import MISSED, MISTAKES, Mistake

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import CPU, Accelerator, Buffer, DeviceRef, Graph, InferenceSession, TensorType, ops

FILE = KERNELS / "waiting.py"
Array = np.ndarray[Any, Any]
OF_WARPS = ("pair", "staged", "named", "rally")  # programs with blocks of 64 threads; those of others have 16
SEEDS = (0, 1, 2, 3)


def inputs(name: str) -> Array:
    return (np.arange(256 if name in OF_WARPS else 64) * 7 % 11 + 1).astype(np.int32)


def first(x: Array, values: Array) -> Array:
    """An output with a value in the first thread of each block, and zeros."""
    out = np.zeros_like(x)
    out[::16] = values
    return out


def fold(values: Array, start: int = 0) -> int:
    for value in values:
        start = 2 * start + int(value)
    return start


def bounded(x: Array) -> Array:
    out = np.full_like(x, 8)
    out[16] += fold(x[:8])
    return out


def wavefront(x: Array) -> Array:
    out = np.zeros_like(x).reshape(-1, 16)
    out[:, :4] = x[:4] + 1 + np.arange(len(out))[:, None]
    return out.ravel()


def split(x: Array) -> Array:
    out = np.zeros_like(x)
    out[:16] = x.reshape(-1, 16).sum(axis=0)
    return out


def crossed(x: Array, half: int, factor: int) -> Array:
    """One half of each block of 64 has the other half's elements, the last first; or its own, for the second half."""
    out, blocks = np.zeros_like(x).reshape(-1, 64), x.reshape(-1, 64)
    out[:, 32 * half : 32 * half + 32] = factor * (blocks[:, 63:31:-1] if half == 0 else blocks[:, 31::-1])
    return out.ravel()


EXPECTED: dict[str, Callable[[Array], Array]] = {
    "counted": lambda x: x[::-1],
    "generations": lambda x: np.roll(x, -48),
    "led": lambda x: x[::-1],
    "chained": np.cumsum,
    "look_back": np.cumsum,
    "locked": lambda x: np.full_like(x, x[::16].sum() + len(x) // 16),
    "lanes_locked": lambda x: np.full_like(x, x.sum()),
    "tickets": lambda x: np.full_like(x, x[::16].sum()),
    "semaphore": lambda x: np.full_like(x, x[::16].sum()),
    "versions": np.ones_like,
    "queue": lambda x: 2 * x,
    "fed": lambda x: np.repeat(np.where(np.arange(len(x) // 16) > 0, 3 * x[::16], 0), 16),
    "bounded": bounded,
    "fenced": lambda x: first(x, np.roll(x[::16], -1)),
    "token": lambda x: np.full_like(x, fold(x[::16], fold(x[::16]))),
    "wavefront": wavefront,
    "split": split,
    "pair": lambda x: crossed(x, 0, 1),
    "staged": lambda x: crossed(x, 1, 10),
    "named": lambda x: crossed(x, 1, 10),
    "rally": lambda x: np.full_like(x, fold(np.array([1, 2] * 5))),
    "peers": lambda x: first(x, np.roll(x[::16], 1)),
}


def run(file: Path, name: str, device: Any) -> Array:
    ref = DeviceRef.CPU() if device.is_host else DeviceRef.GPU()
    row = TensorType(DType.int32, ["n"], ref)
    graph = Graph("g", lambda x: ops.custom(f"waiting::{name}", ref, [x], [row]), [row], custom_extensions=[file])
    x = Buffer.from_numpy(inputs(name))
    result: Array = InferenceSession([device]).load(graph)(x if device.is_host else x.to(device))[0].to_numpy()
    return result


@pytest.mark.parametrize("name", EXPECTED)
def test_right_and_quiet(name: str) -> None:
    wanted = EXPECTED[name](inputs(name)).tolist()
    for seed in SEEDS:
        assert run(FILE, name, Accelerator("sim", checks="all", seed=seed)).tolist() == wanted, seed
    assert run(FILE, name, Accelerator("sim")).tolist() == wanted
    assert run(FILE, name, CPU()).tolist() == wanted


def outcome(mistake: Mistake, folder: Path) -> KernelError | None:
    """The first error of a program with a mistake, in one of several orders of its threads."""
    file = folder / "kernels.py"
    file.write_text(mistake.applied(FILE.read_text()))
    for seed in SEEDS:
        try:
            run(file, mistake.program, Accelerator("sim", checks="all", seed=seed))
        except KernelError as error:
            return error
    return None


def test_mistakes_are_found_at_their_lines(tmp_path: Path) -> None:
    """At least 95 of 100: with the code, and with the line of the text that is named."""
    wrong, missed = [], []
    for mistake in MISTAKES:
        error = outcome(mistake, tmp_path)
        if error is None:
            missed.append(mistake)
            continue
        lines = mistake.applied(FILE.read_text()).splitlines()
        places = [label.place for label in error.labels] or [error.place]
        at = {lines[place.line - 1].strip() for place in places if place is not None}
        if error.code != mistake.code or not set(mistake.at) <= at:
            wrong.append((mistake, error.code, at))
    assert not wrong, "\n".join(map(str, wrong))
    assert missed == [mistake for mistake in MISTAKES if mistake in MISSED]
    assert len(MISTAKES) >= 60 and len(missed) <= 0.05 * len(MISTAKES)


def test_every_program_has_mistakes() -> None:
    assert {mistake.program for mistake in MISTAKES} == EXPECTED.keys()
