"""Exported files for aarch64 give the bits of the Python runtime: an emulator runs the cases of all ops.

They need an emulator, a C compiler and a C library: on Debian qemu-user, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import graphs, op_cases
from support.emulated import Emulated, Program
from support.exported import CallFailed, Exported, attention, attention_arrays, check_equal, compare
from support.graphs import Array
from support.op_cases import batches

from einkorn.dsl.contract import exports
from einkorn.graph.engine.model import Model

FAMILIES = op_cases.exported_families()
F32 = np.float32


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    made = Program.for_aarch64(tmp_path_factory.mktemp("aarch64"))
    if made is None:
        pytest.skip("there is no qemu-aarch64, or no C compiler and library for aarch64")
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield made


class Narrow:
    """The file of a model for x86-64-v2, which has the vectors of aarch64: sums in vectors depend on their width."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model, self.folder = model, folder

    @functools.cached_property
    def exported(self) -> Exported:
        return Exported(self.model, self.folder, targets="x86-64-v2")


def check_bits(model: Model, narrow: Narrow, emulated: Emulated, arrays: list[Array]) -> None:
    """Compares the calls with Python's; with those of the file for narrow vectors where they differ."""
    try:
        check_equal(model, emulated, arrays, nan_bits=False)
    except AssertionError:
        if platform.machine() != "x86_64":
            raise
        ours, theirs = ([array.copy() for array in arrays] for _ in range(2))
        compare([*narrow.exported(*ours), *ours], [*emulated(*theirs), *theirs], nan_bits=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_of_ops(family: str, program: Program, tmp_path: Path) -> None:
    """Every case with its first dtype; all sizes, none at all among them."""
    for dtype in dict.fromkeys(np.dtype(case.dtypes[0]) for case in FAMILIES[family]):
        mine = [case for case in FAMILIES[family] if np.dtype(case.dtypes[0]) == dtype]
        for batch in batches(mine, dtype):
            model = batch.load()
            narrow, emulated = Narrow(model, tmp_path), Emulated(model, tmp_path, program)
            for run in range(batch.runs):
                check_bits(model, narrow, emulated, batch.arrays(run))


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_temporaries_threads_and_failures(program: Program, tmp_path: Path, weights: str) -> None:
    model = graphs.load(attention, (F32, ("b", "k")), (F32, ("k", "n")))
    emulated = Emulated(model, tmp_path, program, "attn", weights=weights)
    for sizes in ((5, 7, 9), (0, 3, 4), (300, 64, 70)):
        check_equal(model, emulated, attention_arrays(*sizes))
    with pytest.raises(CallFailed, match="size 'n' is -3, below zero") as caught:
        emulated.call([None, None], [1, 1, -3])
    assert caught.value.status == exports.WRONG_SIZE
