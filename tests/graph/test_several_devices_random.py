"""Random graphs with transfers at random edges: what `tests/fuzz/check_devices.py` makes more of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import graphs

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

import check_devices


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


@pytest.mark.parametrize("seed", [2, 5, 11])
def test_networks(seed: int) -> None:
    assert check_devices.check_network(seed) == "same"


@pytest.mark.parametrize("seed", [0, 3])
def test_programs_with_control_flow(seed: int) -> None:
    assert check_devices.check_program(seed) == "same"
