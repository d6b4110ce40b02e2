"""The groups of a graph are compiled one by one: equal ones once, kept by themselves, and linked into one entry."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler import groups
from einkorn.compiler.groups import GroupCode, compile_groups
from einkorn.compiler.pipeline import GroupCompilation, compile_entry
from einkorn.compiler.reproducer import read_reproducer
from einkorn.compiler.targets import lookup
from einkorn.dsl.diagnostics.errors import CompileError, InternalError, KernelError
from einkorn.dsl.environment.process_settings import COLLECTING, SWITCHING
from einkorn.graph import DeviceRef, ops
from einkorn.graph.loading import compile as compiling
from einkorn.graph.loading import load as loading
from einkorn.graph.loading.background import BACKGROUND
from einkorn.graph.passes.fusion import partition
from einkorn.graph.passes.memory_plan import make_plan

HOST = DeviceRef.CPU()
KERNELS = """
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register


@register("positive", fuse=False)
def positive(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, limit: float = 0.0) -> None:
    def one(i):
        assert x[i] > limit, f"{x[i]} is not above {limit}"
        return x[i]

    foreach(out, one)


@register("shown", fuse=False)
def shown(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    print("first", x[0])
    for i in range(x.shape[0]):
        out[i] = x[i] + 1.0


@register("wrong", fuse=False)
def wrong(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]) -> None:
    foreach(out, lambda i: x[i] + missing)


@register("worse", fuse=False)
def worse(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]) -> None:
    foreach(out, lambda i: x[i] + absent)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kernels(tmp_path: Path) -> list[Path]:
    (tmp_path / "kernels.py").write_text(KERNELS)
    return [tmp_path / "kernels.py"]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The roots of the groups that are compiled, in their order."""
    seen: list[str] = []

    class Noted(GroupCompilation):
        def __init__(self, spec: Any, *rest: Any) -> None:
            group = spec.groups[0]
            seen.append(group.nodes[group.root].kernel.schema.name)
            super().__init__(spec, *rest)

    monkeypatch.setattr(groups, "GroupCompilation", Noted)
    yield seen


def layers(count: int, last: Callable[[Any], Any] = ops.relu) -> Callable[[Any], Any]:
    """Equal layers over (n, 4), each of a product and a softmax."""
    weights = [np.random.default_rng(k).standard_normal((4, 4)).astype(np.float32) for k in range(count)]

    def forward(x: Any) -> Any:
        for weight in weights:
            x = ops.softmax(x @ ops.constant(weight, device=HOST) + 1.0) * 2.0
        return last(ops.sum(x, 0))

    return forward


X = (np.float32, ["n", 4])


def test_equal_groups_compile_once(compiled: list[str], own_cache: Path) -> None:
    """Within a graph, between graphs, and from the cache."""
    graphs.load(layers(1), X)
    first = [*compiled]
    assert sorted(first) == ["matmul", "relu", "softmax", "sum"] or len(first) in (3, 4)
    compiled.clear()
    graphs.load(layers(4), X)
    assert len(compiled) <= 1  # the product of a later layer takes what the softmax before it gives, fused with "* 2"
    compiled.clear()
    for file in own_cache.glob("v1/*/*.json"):
        file.unlink()  # the whole graph is unknown again
    graphs.load(layers(9), X)
    graphs.load(layers(4), X)
    assert compiled == []


def test_a_changed_op_compiles_one_group(compiled: list[str]) -> None:
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    before = graphs.results(graphs.load(layers(3), X), x)[0]
    compiled.clear()
    after = graphs.results(graphs.load(layers(3, last=ops.tanh), X), x)[0]
    assert len(compiled) == 1
    np.testing.assert_allclose(after, np.tanh(before), rtol=1e-6)  # the sums are positive


def test_a_damaged_group_is_compiled_again(compiled: list[str], own_cache: Path) -> None:
    graphs.load(layers(2), X)
    count = len(compiled)
    for file in own_cache.glob("v1/*/*"):
        if file.suffix == groups.SUFFIX:
            file.write_bytes(file.read_bytes()[:-100])
        elif file.suffix in (".json", ".so"):
            file.unlink()
    x = np.ones((2, 4), np.float32)
    model = graphs.load(layers(2), X)
    assert len(compiled) == 2 * count
    assert np.isfinite(graphs.results(model, x)[0]).all()


def test_code_is_that_of_one_module() -> None:
    """To the bit: the same passes see the same functions."""
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    by_groups = graphs.results(graphs.load(layers(2), X), x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "compile_groups", lambda unit, target, *_: compile_entry(unit, target).pieces[0])
        patch.setattr(loading, "_from_cache", lambda *_: None)
        whole = graphs.results(graphs.load(layers(2), X), x)
    assert by_groups[0].tobytes() == whole[0].tobytes()


def test_the_same_code_comes_out_however_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, graph = lookup("host"), graphs.build(layers(2), X)
    unit = make_plan(graph.ir, partition(graph.ir, lambda n: compiling.node_facts(graph.ir, machine, n))).entry
    assert unit is not None
    alike = set()
    for cache, processors in (("1", 2), ("0", 0), ("0", 3)):
        monkeypatch.setenv("EINKORN_CACHE", cache)
        monkeypatch.setattr(groups, "_processors", lambda count=processors: count)
        alike.add(compile_groups(unit, machine).code)
    assert len(alike) == 1


def test_reports_are_distinguished(kernels: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    """Each group numbers its own; which it is of all shows by its place, its values and its op."""

    def forward(x: Any) -> Any:
        x = ops.custom("shown", HOST, [x])[0]
        x = ops.custom("positive", HOST, [x], parameters={"limit": -1.0})[0]
        x = ops.custom("shown", HOST, [x])[0]
        return ops.custom("positive", HOST, [x], parameters={"limit": 1.0})[0]

    model = graphs.load(forward, (np.float32, ["n"]), extensions=kernels)
    model(np.ones(3, np.float32))
    assert capfd.readouterr().out.split() == ["first", "1.0", "first", "2.0"]
    for value, limit in ((-2.0, -1.0), (-1.0, 1.0)):
        with pytest.raises(KernelError, match=rf"{value + 1 if limit < 0 else 1.0} is not above {limit}") as caught:
            model(np.array([5.0, value], np.float32))
        assert caught.value.op == "positive" and caught.value.place is not None and caught.value.place.line == 8


def test_mistakes_of_all_groups_are_reported(kernels: list[Path]) -> None:
    def forward(x: Any) -> Any:
        return ops.custom("worse", HOST, [ops.custom("wrong", HOST, [x])[0]])[0]

    with pytest.raises(CompileError) as caught:
        graphs.load(forward, (np.float32, ["n"]), extensions=kernels)
    assert "missing" in str(caught.value) and "absent" in str(caught.value)


@pytest.mark.parametrize("target", ["x86-64-v2", "aarch64"])
def test_groups_link_for_other_machines(target: str, kernels: list[Path]) -> None:
    def forward(x: Any) -> Any:
        return ops.custom("positive", HOST, [ops.softmax(x)], parameters={"limit": 0.0})[0]

    graph = graphs.build(forward, (np.float32, ["n", 3]), extensions=kernels)
    machine = lookup(target)
    parts = partition(graph.ir, lambda node: compiling.node_facts(graph.ir, machine, node))
    unit = make_plan(graph.ir, parts).entry
    assert unit is not None and len(unit.groups) == 2
    piece = compile_groups(unit, machine)
    assert piece.code[:4] == b"\x7fELF" and piece == compile_groups(unit, machine)


def test_progress_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[int, int]] = []
    graph = graphs.build(layers(2), X)
    unit = make_plan(graph.ir, partition(graph.ir, lambda n: compiling.node_facts(graph.ir, lookup("host"), n))).entry
    assert unit is not None
    compile_groups(unit, lookup("host"), lambda done, count: reported.append((done, count)))
    count = reported[-1][1]
    assert count > 2 and reported == [(n + 1, count) for n in range(count)]


def test_group_code_survives_bytes() -> None:
    records = [["assert", ["no"], ["k.py", 1, 2, 3, 4], "op", {}, []]]
    code = GroupCode("softmax_0", True, records, b"\x7fELF\n\0code", stack=4096)
    assert GroupCode.from_bytes(code.to_bytes()) == code


@pytest.mark.parametrize("where", ["typed", "native"])
def test_a_fault_leaves_a_reproducer_of_the_group(where: str, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    def trips(*_: Any, **__: Any) -> Any:
        raise KeyError("here")

    target = "build_program" if where == "typed" else "mlir.lower_to_llvm"
    monkeypatch.setattr(f"einkorn.compiler.pipeline.{target}", trips)
    with pytest.raises(InternalError, match="the compiler failed with KeyError: 'here'"):
        graphs.load(layers(2), X)
    file = next(own_cache.rglob("einkorn-fault-*.json"))
    assert len(read_reproducer(str(file))[0].groups) == 1
    BACKGROUND.wait()  # which compiles, too
    # A file for traces may stay: it lives as long as the process.
    assert not list(own_cache.rglob("einkorn-compiles-*.json"))


def test_threads_switch_more_often_while_they_compile(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    """And as before when the work is done, or has failed."""
    seen: list[float] = []
    make, usual = GroupCompilation.make, sys.getswitchinterval()

    def noted(self: GroupCompilation) -> bytes:
        seen.append(sys.getswitchinterval())
        return make(self)

    monkeypatch.setattr(GroupCompilation, "make", noted)
    graphs.load(layers(2), X)
    assert seen and max(seen) <= min(usual, SWITCHING) * 1.01 and sys.getswitchinterval() == usual


def test_garbage_is_collected_more_rarely_while_a_graph_is_compiled(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    """And as before afterwards; a program that has switched the collector off keeps it so."""
    seen: list[tuple[int, int, int]] = []
    make, usual = GroupCompilation.make, gc.get_threshold()

    def noted(self: GroupCompilation) -> bytes:
        seen.append(gc.get_threshold())
        return make(self)

    monkeypatch.setattr(GroupCompilation, "make", noted)
    graphs.load(layers(2), X)
    assert {counts[0] for counts in seen} == {max(usual[0], COLLECTING)} and gc.get_threshold() == usual
    seen.clear()
    gc.set_threshold(0)
    try:
        graphs.load(layers(2, ops.tanh), X)
        assert {counts[0] for counts in seen} == {0} and gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)


def test_ctrl_c_ends_the_work(tmp_path: Path) -> None:
    """While a thread makes an object; the next load goes on from what is done."""
    program = Path(graphs.__file__).with_name("interrupted_groups.py")
    environment = {**os.environ, "EINKORN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
