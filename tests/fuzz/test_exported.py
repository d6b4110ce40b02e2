"""Random networks as exported files: few with much in them (`make fuzz` tries more)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import choosing
from exported import check_exported
from networks.network import Network
from networks.ways import random_network

NETWORKS = choosing.chosen(random_network, choosing.traits_of_network, choosing.cost_of_network, 20)


@pytest.mark.parametrize(("number", "network"), [*enumerate(NETWORKS)], ids=range(len(NETWORKS)))
def test_random_networks_give_the_bits_of_python(
    number: int, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are compiled alike: of three networks one as it ships."""
    if number % 3 and "EINKORN_OPTIMIZE" not in os.environ:
        monkeypatch.setenv("EINKORN_OPTIMIZE", "0")
    assert check_exported(network, tmp_path) == "same"
