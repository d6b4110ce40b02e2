"""The program for large graphs stages what it says, and its table is complete. Times are never judged here."""

from __future__ import annotations

import large_graphs


def test_layers_are_equal() -> None:
    one, three = (large_graphs.encoder(count, "relu").ir for count in (1, 3))
    assert len(three.nodes) - 1 == 3 * (len(one.nodes) - 1)
    assert len(three.inputs) - 1 == 3 * (len(one.inputs) - 1)


def test_the_table_has_a_row_for_each_start() -> None:
    times = {name: [2.0, 1.0] for name in large_graphs.TIMES}
    taken = [{**times, "kernels": 3, "nodes": 9}, {**times, "load": [4.0, 3.0], "kernels": 3, "nodes": 9}]
    samples = {1: dict.fromkeys(large_graphs.KINDS, taken[:1]), 4: dict.fromkeys(large_graphs.KINDS, taken)}
    rows = large_graphs.table(samples).splitlines()
    assert len(rows) == 2 + 2 * len(large_graphs.KINDS)
    assert rows[-1] == "| 4 | 9 | 3 | parts | 2.00 s | 3.000 s | 2.000 s | 2.00 |"
