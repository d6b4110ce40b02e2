"""What Einkorn trips over between a graph and its compile unit is a fault with a reproducer; a mistake stays one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.cli.application import run
from einkorn.compiler.inference import facts
from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.ir.program import NotFusible
from einkorn.compiler.reproducer import read_graph
from einkorn.dsl.diagnostics.errors import CompileError, InternalError
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.loading import compile, load, reproducer
from einkorn.graph.loading.reproducer import graph_from_json
from einkorn.graph.passes import pipeline

KERNELS = """
from einkorn.dsl import *

@register("halved")
def halved(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, by: float = 0.5):
    foreach(out, lambda i: x[i] * by)

@register("wrong")
def wrong(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] + missing)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "kernels.py").write_text(KERNELS)
    compile._facts.clear()
    yield
    compile._facts.clear()


def graph(op: str = "halved") -> Graph:
    def forward(x: Any) -> Any:
        y = ops.custom(op, DeviceRef.CPU(), [ops.reshape(x * 2.0, [-1])])[0]
        return ops.softmax(y) + ops.constant(np.float32(1), DType.float32, DeviceRef.CPU())

    types = [TensorType(DType.float32, ["m", 3], DeviceRef.CPU())]
    return Graph("network", forward=forward, input_types=types, custom_extensions=["kernels.py"])


def trips(*_: Any, **__: Any) -> Any:
    return {}["here"]


def without_first_group(ir: Any, facts_of: Any, **how: Any) -> Any:
    parts = PARTITION(ir, facts_of, **how)
    return replace(parts, groups=parts.groups[1:])


def not_fusible(*_: Any, **__: Any) -> Any:
    raise NotFusible("not even alone")


PARTITION = pipeline.partition
FAULTS: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "fusion": (pipeline, "partition", trips, "EK0901"),
    "a wrong partition": (pipeline, "partition", without_first_group, "EK0908"),
    "the plan": (pipeline, "plan_memory", trips, "EK0901"),
    "the facts": (facts, "count_operations", trips, "EK0901"),
    "no way to fuse": ("einkorn.compiler.pipeline", "build_program", not_fusible, "EK0901"),
    "the cache": (load, "partition_to_json", trips, "EK0901"),
}


@pytest.mark.parametrize("where", FAULTS)
def test_a_fault_of_a_graph_leaves_a_reproducer(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module, name, fault, code = FAULTS[where]
    session, made = InferenceSession(devices=[CPU()]), graph()
    with monkeypatch.context() as broken:
        if isinstance(module, str):
            broken.setattr(f"{module}.{name}", fault)
        else:
            broken.setattr(module, name, fault)
        with pytest.raises(InternalError) as caught:
            session.load(made)
        (file,) = (tmp_path / "cache").rglob("einkorn-fault-*.json")
        text = str(caught.value)
        assert f"error[{code}]" in text and "this is a fault of Einkorn" in text
        assert f"`einkorn reproduce {file}` runs it again" in text and caught.value.reproducer == str(file)
        compile._facts.clear()
        assert run(["reproduce", str(file)]) == 70
        assert code in capfd.readouterr().err
    held = read_graph(str(file))
    assert held is not None
    again, fuse, _, interpret = graph_from_json(held)
    assert str(again) == str(made.ir) and fuse and not interpret
    assert run(["reproduce", str(file)]) == 0
    assert "compiles without a fault" in capfd.readouterr().out
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(session.load(made)(x)[0].to_numpy(), np.full(6, 1 + 1 / 6), rtol=1e-6)


def test_a_fault_of_the_interpreter_leaves_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Interpreted, "__init__", trips)
        with pytest.raises(InternalError, match="the compiler failed with KeyError: 'here'"):
            InferenceSession(devices=[CPU()], interpret=True).load(graph())
        (file,) = (tmp_path / "cache").rglob("einkorn-fault-*.json")
        assert run(["reproduce", str(file)]) == 70
        assert "KeyError" in capfd.readouterr().err
    assert run(["reproduce", str(file)]) == 0


def test_a_fault_is_reported_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the graph is available: the fault is reported, and no other takes its place."""
    monkeypatch.setattr(pipeline, "plan_memory", trips)
    monkeypatch.setattr(reproducer, "graph_to_json", trips)
    with pytest.raises(InternalError) as caught:
        InferenceSession(devices=[CPU()]).load(graph())
    assert "KeyError: 'here'" in str(caught.value) and not caught.value.reproducer


def test_a_mistake_stays_a_mistake(tmp_path: Path) -> None:
    for interpret in (False, True):
        with pytest.raises(CompileError, match="missing") as caught:
            InferenceSession(devices=[CPU()], interpret=interpret).load(graph("wrong"))
        assert not isinstance(caught.value, InternalError)
    assert not list(tmp_path.glob("cache/einkorn-fault-*"))


def test_a_file_without_a_graph(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for graph in ("{}", '{"fuse": 1, "checks": "safe", "interpret": 0, "kernels": [3]}', "[]", "7"):
        (tmp_path / "fault.json").write_text(f'{{"einkorn": 1, "target": "host", "graph": {graph}}}')
        assert run(["reproduce", "fault.json"]) == 1
        assert "error[EK0907]" in capfd.readouterr().err
