"""The program that compares two checkouts measures both, and its table is complete. Times are never judged here."""

from __future__ import annotations

from pathlib import Path

import checkouts
import pytest


def test_the_checkouts_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def sample(checkout: Path, row: str, work: Path) -> float:
        order.append(checkout.name)
        return 2.0 if checkout.name == "old" else 1.0

    monkeypatch.setattr(checkouts, "sample", sample)
    taken = checkouts.measure(Path("old"), Path("new"), ["import einkorn"], pairs=2)
    assert order == ["old", "new", "new", "old", "old", "new"]  # the first pair is not counted
    assert taken == {"import einkorn": [(2.0, 1.0)] * 2}


def test_the_ratio_is_the_median_of_the_ratios_of_pairs() -> None:
    taken = {"import einkorn": [(2.0, 1.0), (2.0, 3.0), (4.0, 4.0)], "call of a kernel": [(1e-7, 2e-7)]}
    assert checkouts.table(taken).splitlines()[2:] == [
        "| import einkorn | 2000.0 ms | 3000.0 ms | 1.000 | 1 of 3 |",
        "| call of a kernel | 100 ns | 200 ns | 2.000 | 1 of 1 |",
    ]
