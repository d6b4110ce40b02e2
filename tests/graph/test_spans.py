"""Spans: parts of a program with a name, in profiles, traces, pages, and as ranges of NVTX."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.profile import record, span

from einkorn.dsl.diagnostics.errors import GraphError
from einkorn.graph import CPU, Accelerator, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.profiling import spans
from einkorn.graph.profiling.profile_page import profile_page, profile_table

X = np.ones(8, np.float32)


def loaded(session: InferenceSession) -> Any:
    return session.load(Graph("g", lambda x: ops.exp(x), [TensorType(DType.float32, ["n"], DeviceRef.CPU())]))


def events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_a_span_holds_the_calls_that_are_made_in_it(tmp_path: Path) -> None:
    session = InferenceSession()
    model = loaded(session)
    with session.profile(tmp_path / "trace.json") as profile, span("outer", step=3):
        for _ in range(2):
            with span("inner"):
                model(X)
    actual = events(json.loads((tmp_path / "trace.json").read_text()))
    (outer,) = [event for event in actual if event["name"] == "outer"]
    assert outer["cat"] == "span" and outer["args"] == {"step": 3}
    for event in actual:
        assert outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + 1e-3
    inner = [event for event in actual if event["name"] == "inner"]
    calls = [event for event in actual if event["cat"] == "call"]
    for each, call in zip(inner, calls, strict=True):
        assert each["ts"] <= call["ts"] and call["dur"] <= each["dur"] and each["tid"] == call["tid"]
    times = profile.spans()
    assert list(times) == ["outer", "inner"] and [len(each) for each in times.values()] == [1, 2]
    assert {"name": "inner", "runs": 2, "total": sum(times["inner"])} in profile.to_dict()["spans"]
    assert "spans of the program" in profile_table(profile) and "inner" in profile_table(profile)
    assert "Spans of the program" in profile_page(profile) and 'class="span"' in profile_page(profile)


def test_a_span_around_a_function() -> None:
    @span("sum")
    def total(n: int) -> int:
        return n if n < 2 else n + total(n - 1)

    @span("later")
    async def later(k: int) -> int:
        async with span(f"task {k}"):
            await asyncio.sleep(0)
            return k

    async def both() -> list[int]:
        return await asyncio.gather(later(1), later(2))

    with record() as profile:
        assert total(4) == 10 and total.__name__ == "total"
        assert asyncio.run(both()) == [1, 2]
    assert {name: len(times) for name, times in profile.spans().items()} == {
        "sum": 4,
        "later": 2,
        "task 1": 1,
        "task 2": 1,
    }


def test_one_span_in_several_threads() -> None:
    part = span("part")

    def work() -> None:
        for _ in range(50):
            with part, part:
                pass

    with record() as profile:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(profile.spans()["part"]) == 400
    assert len({event.thread for event in profile.events}) == 4


def test_a_span_ends_with_an_error_too() -> None:
    with record() as profile:
        with pytest.raises(KeyError), span("failing"):
            raise KeyError
        with span("next"):
            pass
    assert {*profile.spans()} == {"failing", "next"}


def test_spans_without_a_profile_leave_nothing() -> None:
    with span("alone"), record() as profile:
        pass
    assert profile.events == []


def test_record_measures_sessions_that_are_made_in_it(tmp_path: Path) -> None:
    with record(tmp_path / "trace.json") as profile, span("all"):
        loaded(InferenceSession())(X)
    assert [row.name for row in profile.rows()] == ["exp"]
    assert {"all", "g"} <= {event["name"] for event in events(json.loads((tmp_path / "trace.json").read_text()))}


def test_the_page_of_several_devices_has_the_copies() -> None:
    gpu = DeviceRef.GPU()
    session = InferenceSession([CPU(), Accelerator("sim")])
    graph = Graph(
        "g", lambda x: (x.to(gpu) + 1).to(DeviceRef.CPU()), [TensorType(DType.float32, ["n"], DeviceRef.CPU())]
    )
    model = session.load(graph)
    with session.profile() as profile:
        model(X)
    assert any(event.kind == "copy" for event in profile.events) and ": copies<" in profile_page(profile)


def test_a_name_is_a_text() -> None:
    with pytest.raises(GraphError, match="argument 'name'") as caught:
        span(3)  # type: ignore[arg-type]
    assert caught.value.code == "EK0478"


def test_ranges_of_nvtx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text(
        "ranges = []\n"
        "def start_range(message=None):\n    ranges.append(('start', message))\n    return len(ranges)\n"
        "def end_range(number):\n    ranges.append(('end', number))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    spans._nvtx.cache_clear()
    try:
        with span("a"), span("b"):
            pass
        import nvtx  # type: ignore[import-not-found]

        assert nvtx.ranges == [("start", "a"), ("start", "b"), ("end", 2), ("end", 1)]
    finally:
        spans._nvtx.cache_clear()
        sys.modules.pop("nvtx", None)


def test_the_command_shows_spans(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("from einkorn.profile import span\nwith span('whole program'):\n    pass\n")
    command = [sys.executable, "-m", "einkorn", "profile", "program.py", "--trace", "trace.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "whole program  1 runs" in done.stdout, done.stderr
    assert [event["name"] for event in events(json.loads((tmp_path / "trace.json").read_text()))] == ["whole program"]
