"""The network whose decoding is measured is the one that it is compared with. Times are never judged here."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from models_decode import ROWS, Config, check, weights


def test_logits_and_tokens() -> None:
    config = Config(layers=2, width=64, heads=4, shared=2, hidden=96, words=64, room=80)
    collected = check(config, weights(config))
    assert collected["logits"] < 5e-5 and collected["tokens"] == 1.0
    assert all(row.back + row.length <= Config().room for row in ROWS.values())
