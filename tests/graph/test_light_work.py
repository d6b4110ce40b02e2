"""Light groups are compiled quickly and share code, and light products stand apart; results keep their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.compiler import groups, pipeline
from einkorn.compiler.sharing import SharedGroup, shared_groups
from einkorn.dsl.contract.unit import EntrySpec
from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

HOST = DeviceRef.CPU()
MUCH, LITTLE = 512, 8


def tensor(*shape: int | str, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape, HOST)


def unequal(small: Any, first: Any, second: Any) -> tuple[Any, ...]:
    """Three small products between different elementwise ops."""
    one = ops.relu(small @ first)
    two = ops.tanh(one @ second) + one
    return one, two, two @ first


def pair(big: Any, square: Any, small: Any, first: Any, second: Any) -> tuple[Any, ...]:
    """Two large products of another dtype, and the small ones."""
    whole = big @ square
    return whole, ops.relu(whole @ square), *unequal(small, first, second)


SMALL = (tensor("n", LITTLE), tensor(LITTLE, LITTLE), tensor(LITTLE, LITTLE))
SQUARE = tensor(MUCH, MUCH, dtype=DType.float64)
TYPES = (tensor("n", MUCH, dtype=DType.float64), SQUARE, *SMALL)


def large(rows: int) -> list[Any]:
    """The large operands."""
    return [graphs.numbers((rows, MUCH), np.float64, seed=3), graphs.numbers((MUCH, MUCH), np.float64, seed=5)]


def spied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[SharedGroup]:
    """The groups that are compiled from now on, with an empty cache."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path))
    seen: list[SharedGroup] = []

    def record(spec: EntrySpec) -> list[SharedGroup]:
        found = shared_groups(spec)
        seen.extend(found)
        return found

    monkeypatch.setattr(groups, "shared_groups", record)
    return seen


def names(each: SharedGroup) -> list[str]:
    return [node.kernel.schema.name for node in each.group.group.nodes]


def products(seen: list[SharedGroup], light: bool) -> list[SharedGroup]:
    return [each for each in seen if each.group.group.light == light and any("matmul" in n for n in names(each))]


def test_light_products_share_code_and_give_the_numbers_of_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = spied(monkeypatch, tmp_path)
    model = InferenceSession(devices=[CPU()]).load(Graph("light", forward=pair, input_types=TYPES))
    light = products(seen, True)
    assert len(light) == 3 and all(len(names(each)) == 1 for each in light)
    assert len({each.group.key for each in light}) == 1
    assert len(products(seen, False)) == 2
    shown = "\n".join(map(str, model.kernel_summaries))
    assert "'matmul' does little of the graph's work: its code is shared by all that are alike" in shown
    weights = [graphs.numbers((LITTLE, LITTLE), np.float32, seed=k) for k in (1, 2)]
    for rows in (0, 1, 2, 3, 7, 40):
        small = graphs.numbers((rows, LITTLE), np.float32, seed=4)
        results = [each.to_numpy() for each in model(*large(rows), small, *weights)]
        one = np.maximum(small.astype(np.float64) @ weights[0], 0)
        two = np.tanh(one @ weights[1]) + one
        for result, wanted in zip(results[2:], (one, two, two @ weights[0]), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-5)


def test_bits_are_those_of_code_for_much_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = [graphs.numbers((LITTLE, LITTLE), np.float32, seed=k) for k in (1, 2)]

    def run(cache: str) -> list[bytes]:
        monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / cache))
        model = InferenceSession(devices=[CPU()]).load(Graph("light", forward=pair, input_types=TYPES))
        smalls = [graphs.numbers((rows, LITTLE), np.float32, seed=rows) for rows in (1, 5, 33)]
        return [each.to_numpy().tobytes() for small in smalls for each in model(*large(len(small)), small, *rest)]

    quick = run("quick")
    with monkeypatch.context() as patch:
        patch.setattr("einkorn.graph.passes.light_work.PART", 1 << 60)
        assert run("slow") == quick


def test_no_group_is_light_where_all_do_as_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spied(monkeypatch, tmp_path)
    InferenceSession(devices=[CPU()]).load(Graph("even", forward=unequal, input_types=SMALL))
    assert len(seen) >= 3 and not any(each.group.group.light for each in seen)
    assert any(len(names(each)) > 1 for each in products(seen, False))


def test_what_a_call_can_make_much_is_not_light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol of which the large products do not depend may have any size."""
    seen = spied(monkeypatch, tmp_path)

    def forward(square: Any, small: Any, first: Any, second: Any) -> tuple[Any, ...]:
        return square @ square, *unequal(small, first, second)

    InferenceSession(devices=[CPU()]).load(Graph("grows", forward=forward, input_types=(SQUARE, *SMALL)))
    assert len(seen) >= 4 and not any(each.group.group.light for each in seen)


def test_what_a_loop_repeats_is_not_light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spied(monkeypatch, tmp_path)

    def forward(big: Any, square: Any, small: Any, first: Any, second: Any) -> tuple[Any, ...]:
        def body(count: Any, value: Any) -> list[Any]:
            return [count + 1, ops.tanh(ops.relu(value @ first) @ second)]

        zero = ops.constant(np.array(0, np.int64), DType.int64, HOST)
        looped = ops.while_loop([zero, small], lambda count, _: count < 5, body)
        return big @ square, *looped

    InferenceSession(devices=[CPU()]).load(Graph("looped", forward=forward, input_types=TYPES))
    assert not products(seen, True)


def test_light_code_is_optimised_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_OPTIMIZE", "3")
    spied(monkeypatch, tmp_path)
    levels: dict[str, set[int | None]] = {}
    compile_module = pipeline.llvm.compile_module

    def record(text: str, *given: Any, level: int | None = None, **named: Any) -> Any:
        for name in ("matmul", "tanh"):
            if f"@{name}" in text and "elsewhere" in named:
                levels.setdefault(name, set()).add(level)
        return compile_module(text, *given, level=level, **named)

    monkeypatch.setattr(pipeline.llvm, "compile_module", record)
    InferenceSession(devices=[CPU()]).load(Graph("light", forward=pair, input_types=TYPES))
    assert pipeline.LIGHT_LEVEL in levels["matmul"] and None in levels["matmul"]
