"""Exported graphs give the bits of the Python runtime: the cases of all ops. See also tests/fuzz/test_exported.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import graphs, op_cases
from support.exported import Exported, check_equal
from support.op_cases import batches

FAMILIES = op_cases.exported_families()


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
                check_equal(model, exported, batch.arrays(run))
