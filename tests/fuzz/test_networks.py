"""Random networks: few with all in them (`make fuzz` makes new ones), those that were found; a fault would be seen."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import campaign as campaigns  # noqa: E402
import check  # noqa: E402
import check_network  # noqa: E402
import choosing  # noqa: E402
import subjects  # noqa: E402
from networks import bounds, custom, oracle  # noqa: E402
from networks.network import STEPS, Network, staged  # noqa: E402
from networks.redundant import redundant, with_weights  # noqa: E402
from networks.shrinking import shrunk  # noqa: E402
from networks.ways import random_network  # noqa: E402

from einkorn.dsl.contract.checks import SAFE  # noqa: E402
from einkorn.graph import DType  # noqa: E402
from einkorn.graph.engine.optimising import optimise_graph  # noqa: E402
from einkorn.graph.ir import Node  # noqa: E402
from einkorn.graph.loading import reproducer  # noqa: E402
from einkorn.graph.loading.cache_keys import graph_key  # noqa: E402
from einkorn.graph.loading.reproducer import graph_from_json, graph_to_json  # noqa: E402
from einkorn.graph.passes import simplify  # noqa: E402
from einkorn.graph.passes.pipeline import PASSES, GraphPass  # noqa: E402

REGRESSIONS = sorted((HERE / "networks" / "regressions").glob("*.py"))
NETWORKS = subjects.SUBJECTS[1]


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_regressions(file: Path) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    actual = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(actual)
    status, detail = check_network.answer(actual.NETWORK)
    assert status == "same", detail


def test_a_short_campaign(tmp_path: Path) -> None:
    """Few, in which there is as much as in sixty that are not chosen, and more of the ops."""
    networks = choosing.chosen(NETWORKS.random, choosing.traits_of_network, choosing.cost_of_network, 25)
    assert len({choosing.called(step) for network in networks for step in network.steps}) > 95
    campaign = campaigns.Campaign(tmp_path, lambda campaign: None, NETWORKS)
    for network in networks:
        campaign.one(network)
    campaign.child.stop()
    assert not campaign.finds, [file.read_text() for file in campaign.finds.values()]
    assert campaign.outcomes == {"same": 25}


def test_every_kind_of_step_is_reached() -> None:
    """Ops, custom ops, dtypes, inputs, readers and outputs of every kind."""
    collected: Counter[str] = Counter()
    for seed in range(600):
        network = random_network(random.Random(seed))
        readers = Counter(value for _, operands, _ in network.steps for value in set(operands))
        for name, operands, parameters in network.steps:
            collected[f"custom {parameters['name']}" if name == "custom" else name] += 1
            collected["one value twice"] += len(set(operands)) < len(operands)
        for dtype, shape, kind in network.inputs:
            collected.update(
                [dtype, kind or "tensor", f"rank {len(shape)}", *(dim for dim in shape if isinstance(dim, str))]
            )
        collected["many readers"] += max(readers.values(), default=0) > 2
        collected["an input as an output"] += min(network.outputs) < len(network.inputs)
        collected["an output twice"] += len(set(network.outputs)) < len(network.outputs)
        collected["several outputs"] += len(network.outputs) > 1
        collected["no elements"] += any(0 in sizes.values() for sizes in network.sizes)
    wanted = [
        *(name for name in STEPS if name != "custom"),
        *(f"custom {name}" for name in custom.CUSTOM),
        "buffer",
        "turned",
        "tensor",
        "m",
        "n",
    ]
    wanted += [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "uint8",
        "int32",
        "int64",
        "bool",
        "rank 0",
        "rank 4",
    ]
    wanted += ["one value twice", "many readers", "an input as an output", "an output twice", "several outputs"]
    missing = [name for name in [*wanted, "no elements"] if collected[name] < 3]
    assert missing == [], missing
    assert set(STEPS) <= set(oracle.RULES) | {"custom"}


def test_a_graph_survives_its_reproducer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of graph, as JSON and back: the same text, and the same key in the cache. Equal programs of kernels,
    which many of the graphs have, are read once."""
    known: dict[str, Any] = {}
    read = reproducer._kernel

    def kernel(program: Any, shipped: bool) -> Any:
        text = json.dumps([program, shipped])
        if text not in known:
            known[text] = read(program, shipped)
        return known[text]

    monkeypatch.setattr(reproducer, "_kernel", kernel)
    for seed in range(30):
        ir = staged(random_network(random.Random(seed))).ir
        text = json.dumps(graph_to_json(ir, True, SAFE, False))
        again, *how = graph_from_json(json.loads(text))
        assert how == [True, SAFE, False]
        assert graph_key(again, ["host"], True, SAFE) == graph_key(ir, ["host"], True, SAFE)
        assert [str(node) for node in again.nodes if isinstance(node, Node)] == [
            str(node) for node in ir.nodes if isinstance(node, Node)
        ]


ROWS = {"fold_batch_norm", "pack_filters", "pair_filters", "pack_weights", "prepare_weights", "square_filters"}


def test_every_rule_and_pass_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random networks are a proof of the passes over graphs: in some, each rule replaces a node, and each pass does
    something. What few have is covered by rows of its own in tests/graph/test_optimiser.py: `ROWS`."""
    fired: Counter[str] = Counter()

    def counted(rule: simplify.Rule) -> simplify.Rule:
        def apply(graph: Any, node: Node) -> int | None:
            value = rule.apply(graph, node)
            fired[rule.name] += value is not None
            return value

        return dataclasses.replace(rule, apply=apply)

    monkeypatch.setattr(simplify, "RULES", tuple(map(counted, simplify.RULES)))
    load = functools.partial(check.compiled, checks="safe", level=0, fuse=True)
    for seed in range(24):
        ir = redundant(staged(random_network(random.Random(seed))).ir, seed)
        with check_network.small_weights():
            done = optimise_graph(with_weights(ir)[0] if seed % 2 else ir, load, None, False)
        fired.update(each.name for each in done.passes if each.changed)
    wanted = {rule.name for rule in simplify.RULES} | {each.name for each in PASSES if isinstance(each, GraphPass)}
    wanted -= {"overlap", "cut_products"}  # they change collectives: tests/graph/test_overlap.py, test_cut_products.py
    assert wanted - set(fired) <= ROWS, fired


LAYER = Network(
    inputs=(("float32", ("m", "n", 4), ""), ("float32", ("n",), "")),
    steps=(
        ("tanh", (1,), {}),
        ("constant", (), {"dtype": "float32", "shape": [4, 4], "seed": 3}),
        ("matmul", (0, 3), {}),
        ("add", (4, 0), {}),
        ("mean", (5,), {"axis": 2, "keepdims": True}),
        ("sub", (5, 6), {}),
        ("softmax", (7,), {"axis": 2}),
    ),
    outputs=(8, 2, 0),
    sizes=({"m": 2, "n": 3}, {"m": 1, "n": 0}),
)


# A part of it: to make one small, many are compiled.
FEW_STEPS = Network(
    inputs=LAYER.inputs,
    steps=(*LAYER.steps[:3], ("softmax", (4,), {"axis": 2})),
    outputs=(5, 2),
    sizes=LAYER.sizes,
)


def test_a_wrong_result_is_seen_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a NumPy that believes in another softmax."""
    monkeypatch.setitem(oracle.RULES, "softmax", lambda x, p: oracle.softmax(False)(x, {"axis": 1}))
    status, detail = check_network.answer(FEW_STEPS)
    assert status == "differs" and "output 0" in detail and "op by op" in detail
    small = shrunk(FEW_STEPS, lambda network: check_network.answer(network)[0] == "differs")
    assert [name for name, _, _ in small.steps] == ["softmax"] and len(small.inputs) == len(small.sizes) == 1
    assert Network.from_json(small.to_json()) == small


def test_a_wrong_fusion_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is within rounding, but not the same as op by op."""
    fine = check_network.run
    calls: list[Any] = []

    def wrong(*given: Any) -> Any:
        actual = fine(*given)
        calls.append(given)
        return actual if len(calls) != 2 else [np.nextafter(actual[0], np.float32(9)), *actual[1:]]

    monkeypatch.setattr(check_network, "run", wrong)
    status, detail = check_network.answer(LAYER)
    assert status == "differs" and "fused is not op by op, output 0" in detail


def test_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(*_: Any, **__: Any) -> Any:
        raise KeyError(7)

    monkeypatch.setattr(check_network.check, "make_plan", trips)
    status, detail = check_network.answer(LAYER)
    assert status == "fault" and "KeyError: 7" in detail


def test_intervals_are_narrow() -> None:
    """The oracle says something: of nearly all elements, to within a tenth."""
    seen, total = 0, 0
    for seed in range(1000, 1100):
        network = random_network(random.Random(seed))
        for call, sizes in enumerate(network.sizes):
            arrays = check_network.arrays_of(network, sizes, call)
            for part in oracle.results_of(network, arrays, custom.custom):
                seen += sum(check_network.narrow(one) for one in part)
                total += sum(one.low.size for one in part)
    assert seen > 0.9 * total > 0


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16, DType.float32, DType.float64], ids=str)
def test_intervals_hold_what_rounding_makes(dtype: DType) -> None:
    """Of a sum in another order, and of what is exact; and not what is off by many roundings."""
    kind = dtype.to_numpy()
    x = (np.random.default_rng(0).standard_normal((5, 40))).astype(kind)
    exact = bounds.exact(x, dtype)
    assert not bounds.outside(x, exact).any()
    p = {"axis": 1, "keepdims": False}
    total = oracle.summed(exact, p)
    backwards = np.zeros(5, np.float32 if dtype.bits < 64 else np.float64)
    for k in range(39, -1, -1):
        backwards += x[:, k].astype(backwards.dtype)
    assert not bounds.outside(backwards.astype(kind), total).any()
    product = oracle.mul(exact, exact, {})
    right = (x.astype(np.float64) * x.astype(np.float64)).astype(kind)
    assert not bounds.outside(right, product).any()
    off = (right.astype(np.float64) * (1 + 64 * bounds.unit(dtype))).astype(kind)
    assert bounds.outside(off, product).all()
