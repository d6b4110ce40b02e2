"""Philox: Random123's published vectors, NumPy's generator, and the moments of what is made of its words."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl import DType

KERNELS = Path(__file__).parent / "kernels_random.py"
Run = Callable[..., list[np.ndarray[Any, Any]]]

# Random123's known answers for 10 rounds: counter, key, words.
KNOWN_32 = (
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


def test_published_vectors(run_kernel: Run) -> None:
    counter, key, words = (np.array(column, np.uint32) for column in zip(*KNOWN_32, strict=True))
    assert np.array_equal(run_kernel(KERNELS, "words_32", [key, counter])[0], words)


def test_philox_4x64_is_numpys(run_kernel: Run) -> None:
    rng = np.random.default_rng(1)
    key = rng.integers(0, 1 << 64, (20, 2), dtype=np.uint64)
    counter = rng.integers(0, 1 << 64, (20, 4), dtype=np.uint64)
    counter[:, 0] |= np.uint64(1)  # NumPy adds 1 before it shifts; no carry
    before = counter.copy()
    before[:, 0] -= np.uint64(1)
    want = [np.random.Philox(counter=c, key=k).random_raw(4) for c, k in zip(before, key, strict=True)]
    assert np.array_equal(run_kernel(KERNELS, "words_64", [key, counter])[0], np.array(want))


@pytest.mark.parametrize("seed", [0, -1, 2**40 + 7])
def test_words_by_position(seed: int, run_kernel: Run) -> None:
    one, eight = run_kernel(
        KERNELS, "by_position", [np.array([seed])], outputs=[(DType.uint32, (64,)), (DType.uint32, (64,))]
    )
    bits = seed % (1 << 64)
    key = np.tile(np.array([bits & 0xFFFFFFFF, bits >> 32], np.uint32), (64, 1))
    counter = np.zeros((64, 4), np.uint32)
    counter[:, 0] = np.arange(64)
    want = run_kernel(KERNELS, "words_32", [key, counter])[0][:, 0]
    assert np.array_equal(one, want) and np.array_equal(eight, want)


@pytest.mark.parametrize("op", ["distributions", "distributions_64"])
def test_distributions(op: str, run_kernel: Run) -> None:
    n = 1 << 18
    dtype = DType.float64 if op.endswith("64") else DType.float32
    seed = np.array([5, 6], np.uint64) if op.endswith("64") else np.array([5])
    u, z = run_kernel(KERNELS, op, [seed], outputs=[(dtype, (n,)), (dtype, (n,))])
    assert u.min() >= 0 and u.max() < 1
    # Six standard deviations of what these are for truly random numbers.
    assert abs(u.mean() - 0.5) < 6 * math.sqrt(1 / 12 / n)
    counts = np.bincount((u * 64).astype(int), minlength=64)
    assert abs(((counts - n / 64) ** 2 / (n / 64)).sum() - 63) < 6 * math.sqrt(2 * 63)
    assert abs(z.mean()) < 6 / math.sqrt(n) and abs((z**2).mean() - 1) < 6 * math.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 6 * math.sqrt(96 / n) and abs((u * z).mean()) < 6 / math.sqrt(3 * n)
