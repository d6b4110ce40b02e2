"""Profiles: calls, groups and tasks, as rows, traces, pages and by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.cli.application import run
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.profiling.profile import AMBIENT
from einkorn.graph.profiling.profile_page import profile_page, profile_table, shown_time

CPU = DeviceRef.CPU()


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def network(x: Any) -> Any:
    return ops.softmax(ops.relu(x @ x) + 1.0)


def staged(name: str = "net") -> Graph:
    return Graph(name, forward=network, input_types=[TensorType(DType.float32, ["n", "n"], CPU)])


def test_every_call_and_group_is_measured(tmp_path: Path) -> None:
    session = InferenceSession(num_threads=2)
    model = session.load(staged())
    x = graphs.numbers((300, 300), np.float32)
    expected = graphs.results(model, x)[0]
    with session.profile(tmp_path / "trace.json") as profile:
        for _ in range(3):
            assert np.array_equal(graphs.results(model, x)[0], expected)
        other = session.load(staged("other"))
        other(x[::2, ::2])
        out = np.empty_like(expected)
        assert np.array_equal(model.execute(x, out=[out])[0].to_numpy(), expected) and np.array_equal(out, expected)
    seen = len(profile.events)
    model(x)
    assert len(profile.events) == seen, "it is closed"
    kinds = [event.kind for event in profile.events]
    assert kinds.count("call") == 5 and kinds.count("load") == 1
    assert kinds.count("task") >= kinds.count("group") > 0
    rows = profile.rows()
    assert {(row.model, row.runs) for row in rows} == {("net", 4), ("other", 1)}
    assert sum(row.share for row in rows) == pytest.approx(1)
    names = [op for row in rows if row.model == "net" for op in row.details["ops"]]
    assert sorted(names) == ["add", "broadcast_to", "matmul", "relu", "softmax"]
    assert all(Path(__file__).name in place for place in rows[0].details["places"])
    for event in profile.events:
        assert event.duration >= 0
        around = [e for e in profile.events if e.kind == "call" and e.start <= event.start]
        assert event.kind == "call" or around


def test_the_trace_is_chromes(tmp_path: Path) -> None:
    session = InferenceSession()
    model = session.load(staged())
    with session.profile(str(tmp_path / "trace.json")):
        model(np.ones((4, 4), np.float32))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [e for e in events if e["ph"] == "M"]
    timed = [e for e in events if e["ph"] == "X"]
    assert {e["tid"] for e in timed} <= {e["tid"] for e in named}
    call = next(e for e in timed if e["cat"] == "call")
    groups = [e for e in timed if e["cat"] == "group"]
    assert groups and all(call["ts"] <= g["ts"] and g["ts"] + g["dur"] <= call["ts"] + call["dur"] for g in groups)
    assert call["args"]["shapes"] == "(4, 4)"


def test_loops_and_branches_are_measured_round_by_round() -> None:
    def forward(x: Any) -> Any:
        return ops.while_loop([x], lambda y: ops.max(y, axis=None) < 100.0, lambda y: [y * 2.0])[0]

    graph = Graph("loop", forward=forward, input_types=[TensorType(DType.float32, [], CPU)])
    session = InferenceSession()
    model = session.load(graph)
    with session.profile() as profile:
        assert model(np.float32(1))[0].to_numpy() == 128
    assert max(row.runs for row in profile.rows()) >= 7


def test_an_interpreted_model_is_measured_as_a_whole() -> None:
    session = InferenceSession(interpret=True)
    model = session.load(staged())
    with session.profile() as profile:
        model(np.ones((2, 2), np.float32))
    assert [event.kind for event in profile.events] == ["call"] and not profile.rows()
    assert "no group" in profile_page(profile).lower() and "1 calls" in profile_table(profile)


def test_a_failing_call_is_measured_too() -> None:
    session = InferenceSession()
    model = session.load(staged())
    with session.profile() as profile, pytest.raises(ValueError, match="of 'x'"):
        model(np.ones((2, 3), np.float32))
    assert [event.kind for event in profile.events] == ["call"]


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\nimport numpy as np\n"
        "from einkorn.graph import *\n"
        "assert sys.argv[1:] == ['--size', '3'] and __name__ == '__main__'\n"
        "type = TensorType(DType.float32, ['n'], DeviceRef.CPU())\n"
        "model = InferenceSession().load(Graph('g<&', forward=lambda x: ops.exp(x), input_types=[type]))\n"
        "model(np.ones(3, np.float32))\n"
    )
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    status = run(["profile", "-o", str(page), "--trace", str(trace), str(script), "--size", "3"])
    assert status == 0 and not AMBIENT
    printed = capfd.readouterr().out
    assert "exp" in printed and "1 calls took" in printed
    text = page.read_text()
    assert "g&lt;&amp;" in text and "<svg" in text and "http" not in text.replace("http://www.w3.org", "")
    assert json.loads(trace.read_text())["traceEvents"]
    assert run(["profile", str(tmp_path / "none.py")]) == 2


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(3, "3 ns"), (1240, "1.24 us"), (87_000, "87 us"), (3.1e6, "3.1 ms"), (2e9, "2 s")]
)
def test_times_have_units(nanoseconds: float, text: str) -> None:
    assert shown_time(nanoseconds) == text
