"""Random networks over several ranks, a few (`make fuzz` makes new ones); a fault would be seen and made small."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import campaign as campaigns  # noqa: E402
import check_sharded  # noqa: E402
import subjects  # noqa: E402
from sharded import oracle  # noqa: E402
from sharded.network import STEPS, ShardedNetwork  # noqa: E402
from sharded.shrinking import shrunk  # noqa: E402
from sharded.ways import DTYPES, MESHES, random_network  # noqa: E402

LAYER = ShardedNetwork(
    mesh={"d": 2, "m": 2},
    inputs=(("float32", ("m", 4), "own"), ("float32", (4, 8), "same")),
    steps=(
        ("allreduce", (0,), {"how": "sum", "group": "m"}),
        ("shard", (1,), {"axes": {"d": 1}}),
        ("matmul", (2, 3), {}),
        ("loop", (4,), {"count": 2, "steps": [["broadcast", {"group": "m", "root": 1}], ["negate", {}]]}),
        ("allgather", (5,), {"group": "d", "axis": 0}),
    ),
    outputs=(6, 2),
    sizes=({"m": 4}, {"m": 0}),
)


@pytest.mark.parametrize("seeds", [range(4), range(4, 12)], ids=str)
def test_a_short_campaign(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges are what is tried: a few with code as it ships."""
    if 0 not in seeds and "EINKORN_OPTIMIZE" not in os.environ:
        monkeypatch.setenv("EINKORN_OPTIMIZE", "0")
    campaign = campaigns.Campaign(tmp_path, lambda campaign: None, subjects.Sharded())
    for seed in seeds:
        campaign.one(random_network(random.Random(seed)))
    campaign.child.stop()
    assert not campaign.finds, [file.read_text() for file in campaign.finds.values()]
    assert campaign.outcomes == {"same": len(seeds)}


def test_every_kind_of_step_is_reached() -> None:
    """Steps, dtypes and meshes of every kind; networks of an equal seed are equal and survive JSON."""
    collected: Counter[str] = Counter()
    for seed in range(150):
        network = random_network(random.Random(seed))
        assert ShardedNetwork.from_json(network.to_json()) == network
        assert seed >= 20 or network == random_network(random.Random(seed))
        collected.update(name for name, _, _ in network.steps)
        collected.update([str(network.mesh), *(dtype for dtype, _, _ in network.inputs)])
        collected.update(f"group {p['group']}" for _, _, p in network.steps if "group" in p)
        collected["no elements"] += any(0 in sizes.values() for sizes in network.sizes)
    wanted = [*STEPS, *DTYPES, *map(str, MESHES), "group *", "group m", "group d", "no elements"]
    assert [name for name in wanted if collected[name] < 2] == []
    assert set(STEPS) == set(oracle.RULES)


def test_a_layer_with_a_loop() -> None:
    assert check_sharded.answer(LAYER) == ("same", "")


def test_products_are_computed_in_pieces() -> None:
    """Of two products the second, in blocks of 512 bytes; the exchange of the first goes on meanwhile."""
    check_sharded.ran.clear()
    for mesh in ({"m": 2}, {"m": 4}):
        network = ShardedNetwork(
            mesh=mesh,
            inputs=(("float32", ("m", 4), "own"), ("float32", (4, 8), "same")),
            steps=(
                ("negate", (0,), {}),
                ("product_sum", (2, 1), {"how": "sum", "group": "m"}),
                ("product_sum", (0, 1), {"how": "max", "group": "m"}),
            ),
            outputs=(3, 4),
            sizes=({"m": 136}, {"m": 0}, {"m": 64}),
            seed=2,
        )
        assert check_sharded.answer(network) == ("same", "")
    assert check_sharded.ran["collective::allreduce_product"] == check_sharded.ran["collective::start_allreduce"] == 2


def test_a_wrong_result_is_seen_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a NumPy that believes in the groups of another axis."""
    right = oracle.groups
    monkeypatch.setattr(oracle, "groups", lambda mesh, name: right(mesh, {"m": "d"}.get(name, name)))
    status, detail = check_sharded.answer(LAYER)
    assert status == "differs" and "rank 0, call 0, output 0" in detail
    small = shrunk(LAYER, lambda network: check_sharded.answer(network)[0] == "differs", 40)
    assert len(small.steps) == len(small.sizes) == len(small.outputs) == 1


def test_the_model_of_a_collective_is_what_it_is() -> None:
    """The oracle against sums by hand, of groups along both axes."""
    parts = [np.full(2, 1 << rank, np.int32) for rank in range(4)]
    for group, sums in (("d", [5, 10, 5, 10]), ("m", [3, 3, 12, 12]), ("*", [15] * 4)):
        reduced = oracle.RULES["allreduce"]({"d": 2, "m": 2}, [parts], {"how": "sum", "group": group})
        assert [int(each[0]) for each in reduced] == sums
