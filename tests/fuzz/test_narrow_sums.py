"""A short run of `narrow_sums`, and what it writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from narrow_sums import campaign


@pytest.mark.parametrize("seed", range(2))
def test_sums_of_narrow_integers_are_equal_or_refused(seed: int) -> None:
    tally = campaign(30, seed)
    assert not tally.wrong, tally.wrong[0]
    assert tally.equal >= 20, tally.codes
