"""Under "safe" no kernel leaves its tensors: fresh adversaries, what they found, and whether a fault would be seen."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Hashable
from itertools import combinations
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import adversary  # noqa: E402
import campaign as campaigns  # noqa: E402
import choosing  # noqa: E402
import subjects  # noqa: E402
from programs import Program  # noqa: E402
from writing.indices import FEATURES, HEAD, INPUTS  # noqa: E402

INDEXERS = subjects.SUBJECTS[2]


def test_a_short_campaign(tmp_path: Path) -> None:
    """Few, in which any two features come together, and nearly any three that do in sixty that are not chosen."""
    programs = choosing.chosen(INDEXERS.random, choosing.traits_of_indexer, choosing.cost_of_indexer, 20)
    reached = set[Hashable]().union(*map(choosing.traits_of_indexer, programs))
    assert len(reached) > 1540 and set(combinations(sorted(FEATURES), 2)) <= reached
    campaign = campaigns.Campaign(tmp_path, lambda campaign: None, INDEXERS)
    for program in programs:
        campaign.one(program)
    campaign.child.stop()
    assert not campaign.finds, [file.read_text() for file in campaign.finds.values()]
    assert sum(campaign.outcomes.values()) == 20 and campaign.outcomes["same"] > 0


def test_every_kind_of_access_is_reached() -> None:
    rng = random.Random(2026)
    actual = Counter(feature for _ in range(300) for feature in INDEXERS.random(rng).features)
    assert [feature for feature in FEATURES if not actual[feature]] == []


# What an adversary or its author found, in as few lines.
FOUND = {
    "a step backwards": "for i in range(4): out[i] = z.load(i // 8, 1, width=4, stride=-1).reduce_add()",
    "a constant beyond 64 bits": "for i in range(4): out[((x.size + 4) * 9223372036854775807)] = 1",
    "a loop of no rounds from data": "for i in range(of(ids, 3), of(ids, 4)): out[i + 3] = 1",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str) -> None:
    for seed in range(3):
        status, detail = adversary.judged(Program(f"{HEAD}    {FOUND[name]}\n", INPUTS, seed, symbolic=True))
        assert status in ("same", "fails"), detail


def test_a_fault_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code without checks writes before its result, which lies at the end of its page."""
    program = Program(f"{HEAD}    for i in range(out.dim(0)): out[i - 1] = 1\n", INPUTS, 3, symbolic=True)
    assert adversary.judged(program)[0] == "fails"
    real = adversary.check.compiled
    monkeypatch.setattr(adversary.check, "compiled", lambda ir, checks, level, fuse: real(ir, "off", level, fuse))
    status, detail = adversary.judged(program)
    assert status == "fault" and "written outside a result" in detail


def test_fences_hold() -> None:
    for at_end in (False, True):
        fence = adversary.Fenced((5,), "float32", at_end)
        assert fence.is_whole() and fence.array.shape == (5,)
        fence.rest[at_end is False][-1 if at_end else 0] = 0
        assert not fence.is_whole()
