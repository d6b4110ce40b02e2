"""What agreed with PyTorch's OpInfo samples still does: no fewer samples of an op than `opinfo.json` says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
COUNTS: dict[str, int] = json.loads((HERE / "opinfo.json").read_text())
pytestmark = pytest.mark.foreign


@pytest.fixture(scope="module")
def infos() -> dict[str, Any]:
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    sys.path.insert(0, str(HERE))
    import opinfo

    return {opinfo.name_of(info): info for info in opinfo.op_infos()}


@pytest.mark.parametrize("name", COUNTS)
def test_no_sample_is_lost(name: str, infos: dict[str, Any]) -> None:
    import opinfo

    result = opinfo.run_op(infos[name])
    assert result.passed >= COUNTS[name], "\n".join(result.failures)
