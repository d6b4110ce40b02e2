"""Exported graphs give the bits of the Python runtime: the cases of all ops, random networks."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import graphs, op_cases
from support.exported import CallFailed, Exported
from support.op_cases import batches

from einkorn.dsl.diagnostics.errors import EinkornError

FAMILIES = op_cases.families()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_of_ops(family: str, tmp_path: Path) -> None:
    """Every case with its first dtype; all sizes, none at all among them."""
    for dtype in dict.fromkeys(np.dtype(case.dtypes[0]) for case in FAMILIES[family]):
        mine = [case for case in FAMILIES[family] if np.dtype(case.dtypes[0]) == dtype]
        for batch in batches(mine, dtype):
            model = batch.load()
            exported = Exported(model, tmp_path)
            for run in range(batch.runs):
                equal(model, exported, batch.arrays(run))


def equal(model: graphs.Model, exported: Exported, arrays: list[graphs.Array]) -> None:
    """A call of both gives the same outputs, changes its inputs alike, or fails in both."""
    ours, theirs = ([array.copy() for array in arrays] for _ in range(2))
    try:
        wanted = graphs.results(model, *ours)
    except EinkornError:
        with pytest.raises(CallFailed):
            exported(*theirs)
        return
    found = exported(*theirs)
    for k, (a, b) in enumerate(zip([*wanted, *ours], [*found, *theirs], strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), k
        assert zlib.crc32(a.tobytes()) == zlib.crc32(b.tobytes()), k
