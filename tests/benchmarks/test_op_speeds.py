"""The table of speeds has a row for each op, or a reason; rows stage, and make up the page. Times are not judged."""

from __future__ import annotations

import threading
import time
from typing import Any

import measure
import numpy as np
import ops as program
import pytest
from op_rows import ROWS, WITHOUT
from op_rows import row as row_of_table

from einkorn.graph import DeviceRef, DType, Graph, TensorType
from einkorn.graph.ops.stage import OPS


def test_an_op_has_a_row_or_a_reason() -> None:
    """A row stands in benchmarks/op_rows; what cannot be timed says why in `WITHOUT`."""
    timed = {row.op for row in ROWS}
    assert timed.isdisjoint(WITHOUT) and timed | set(WITHOUT) == set(OPS)
    assert len({(row.op, row.size) for row in ROWS}) == len(ROWS)


class Zeros:
    """What a generator gives, as fast as can be, where nothing looks at floats."""

    def __init__(self, real: np.random.Generator) -> None:
        self.integers = real.integers

    def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.zeros(shape, np.float32)


def test_rows_stage_and_something_else_computes_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_of_table, "MAKE", Zeros(row_of_table.MAKE))
    for row in ROWS:
        types = [TensorType(DType.from_numpy(x.dtype), x.shape, DeviceRef.CPU()) for x in row.arrays()]
        assert Graph(row.op, row.ours, types).ir.outputs, row
        assert any((row.numpy, row.torch, row.onnx, row.jax)), row


def test_a_row_is_compared_before_it_is_timed() -> None:
    number = next(k for k, row in enumerate(ROWS) if row.op == "roll")
    lines: dict[program.Key, program.Line] = {}
    assert not program.show({"row": number, "threads": 1, **program.measured(ROWS[number], 1, 3)}, lines)
    ((key, (ratio, line)),) = lines.items()
    assert key == ("roll", ROWS[number].size, "1") and ratio > 0 and line.endswith(f" {ratio:.2f} |")
    with pytest.raises(AssertionError, match="shape"):
        program._check(np.zeros(2), np.zeros(3), 0.0)
    with pytest.raises(AssertionError, match="Not equal"):
        program._check(np.zeros(2), np.ones(2), 0.1)


def test_lines_of_the_page_stay_when_some_are_timed_anew(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(program, "PAGE", tmp_path / "page.md")
    lines = {("roll", "gone", "1"): (3.0, "| roll | gone | 1 | 1 µs | numpy | 3 µs | 3.00 |")}
    size = next(row.size for row in ROWS if row.op == "tile")
    kept = ("tile", size, "2"), (0.25, f"| tile | {size} | 2 | 4 µs | torch | 1 µs | 0.25 |")
    text = program.page({**lines, kept[0]: kept[1]})
    assert "1 of 2 are below 0.5" in text and text.index("tile") < text.index("roll")
    assert all(f"| `{name}` | {why} |" in text for name, why in WITHOUT.items())
    program.PAGE.write_text(text, encoding="utf-8")
    assert program.known() == dict([kept])  # a row that is no more is left out


def test_a_process_that_dies_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.sys, "executable", "/bin/false")
    actual = list(program.results([4, 7], 1, 3))
    assert [each["row"] for each in actual] == [4, 7] and all("ended with 1" in str(each) for each in actual)


def test_a_sample_waits_until_nothing_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of contenders look for work before they sleep, and would take a core from code that comes next."""
    running = iter([True, True, False])
    monkeypatch.setattr(measure, "_others_run", lambda: next(running))
    measure.settle(0.0)
    assert next(running, None) is None  # requested until nothing ran

    at_work, end = threading.Event(), threading.Event()

    def spin() -> None:
        at_work.set()
        while not end.is_set():
            pass

    monkeypatch.undo()
    spinner = threading.Thread(target=spin, daemon=True)
    spinner.start()
    at_work.wait()
    assert any(measure._others_run() for _ in range(1000))
    end.set()
    spinner.join()


def test_calls_in_which_code_is_made_do_not_count() -> None:
    """A model opens a door in one of its first calls: that this one lasts says nothing of the others."""
    calls = 0

    def function() -> None:
        nonlocal calls
        calls += 1
        if calls <= 5:
            time.sleep(0.01)

    assert measure._calls_for(function, 2e-3) > 20
