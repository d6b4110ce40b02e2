"""Choosing tokens: each lies in the kept set of a sorted computation in float64, and frequencies are those of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor

from einkorn import functional as F
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import nn

LOGITS = np.random.default_rng(0).standard_normal(60).astype(np.float32) * 2
LOGITS[7] = LOGITS[3]  # two are equal
LOGITS[9], LOGITS[10] = -np.inf, np.nan


def kept(logits: Any, params: nn.SamplingParams) -> tuple[Any, Any]:
    """The tokens that may come, and their likelihoods."""
    x = np.where(np.isnan(logits), -np.inf, logits).astype(np.float64)
    order = np.lexsort((np.arange(len(x)), -x))
    if 0 < params.top_k < len(x):
        order = order[: params.top_k]
    shares = np.exp((x[order] - x[order][0]) / params.temperature)
    if params.top_p < 1:
        reached = np.cumsum(shares / shares.sum())
        count = int(np.searchsorted(reached, params.top_p * (1 - 1e-7))) + 1
        order, shares = order[:count], shares[:count]
    likely = (shares >= params.min_p * (1 - 1e-6)) & (shares > 0)
    return order[likely], shares[likely] / shares[likely].sum()


@pytest.mark.parametrize(
    "params",
    [
        nn.SamplingParams(),
        nn.SamplingParams(temperature=0.7, top_k=5),
        nn.SamplingParams(top_p=0.8),
        nn.SamplingParams(temperature=1.3, top_k=12, top_p=0.7),
        nn.SamplingParams(min_p=0.1),
        nn.SamplingParams(top_k=30, top_p=0.9, min_p=0.05),
        nn.SamplingParams(temperature=2.0, top_k=1),
        nn.SamplingParams(temperature=1e-4),
    ],
)
def test_draws(params: nn.SamplingParams) -> None:
    draws = 4000
    tokens, logprobs = (t.numpy() for t in nn.sample(np.tile(LOGITS, (draws, 1)), params, range(draws)))  # type: ignore[arg-type]
    allowed, shares = kept(LOGITS, params)
    assert set(tokens) <= set(allowed)
    expected = shares * draws
    counts = np.array([(tokens == token).sum() for token in allowed])
    often = expected > 5
    if often.sum() > 1:
        chi = ((counts - expected) ** 2 / expected)[often].sum() / (often.sum() - 1)
        assert chi < 2.2
    x = np.where(np.isnan(LOGITS), -np.inf, LOGITS).astype(np.float64)
    np.testing.assert_allclose(logprobs, (x - np.log(np.exp(x).sum()))[tokens], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "params",
    [
        nn.SamplingParams(temperature=0.5, top_k=40),
        nn.SamplingParams(top_p=0.3),
        nn.SamplingParams(temperature=0.8, top_p=0.95),
        nn.SamplingParams(top_k=9000),
    ],
)
def test_large_vocabularies(params: nn.SamplingParams) -> None:
    """Candidates are left out before the search; of these none may come."""
    logits = np.random.default_rng(3).standard_normal(9001).astype(np.float32) * 3
    tokens = nn.sample(np.tile(logits, (300, 1)), params, range(300))[0].numpy()  # type: ignore[arg-type]
    allowed, shares = kept(logits, params)
    assert set(tokens) <= set(allowed)
    seen = np.isin(tokens, allowed[: len(allowed) // 4]).mean()
    assert abs(seen - shares[: len(allowed) // 4].sum()) < 0.1


def test_ties_at_the_edge_go_to_the_first() -> None:
    logits = np.zeros((500, 9), np.float32)
    tokens = nn.sample(logits, nn.SamplingParams(top_k=4), range(500))[0].numpy()  # type: ignore[arg-type]
    assert set(tokens) == {0, 1, 2, 3}
    tokens = nn.sample(logits, nn.SamplingParams(top_p=0.5), range(500))[0].numpy()  # type: ignore[arg-type]
    assert set(tokens) == {0, 1, 2, 3, 4}


def test_a_row_gives_the_same_token_in_any_batch() -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((5, 300)).astype(np.float32)
    params = [
        nn.SamplingParams(seed=3, top_p=0.9),
        nn.SamplingParams(temperature=0),
        nn.SamplingParams(seed=3, top_k=7),
        nn.SamplingParams(seed=-4),
        nn.SamplingParams(seed=1 << 60, temperature=3.0, min_p=0.01),
    ]
    together = nn.sample(logits, params, [5, 6, 7, 8, 9])[0].numpy()
    for k in range(5):
        assert nn.sample(logits[k : k + 1], params[k], 5 + k)[0].tolist() == [together[k]]
    assert together[1] == logits[1].argmax()
    several = [nn.sample(logits[:1], params[0], step)[0].item() for step in range(20)]
    assert len(set(several)) > 3
    assert several != [nn.sample(logits[:1], nn.SamplingParams(seed=4, top_p=0.9), s)[0].item() for s in range(20)]


def test_masks_and_penalties() -> None:
    logits = np.random.default_rng(2).standard_normal((2, 6)).astype(np.float32)
    greedy = nn.SamplingParams(temperature=0)
    best = logits.argmax(-1)
    mask = np.ones((2, 6), bool)
    mask[[0, 1], best] = False
    second = nn.sample(logits, greedy, 0, mask=mask)[0].numpy()
    assert (second == np.where(mask, logits, -np.inf).argmax(-1)).all()
    added = np.where(mask, 0, -np.inf).astype(np.float32)
    assert nn.sample(logits, greedy, 0, mask=added)[0].tolist() == second.tolist()
    assert nn.sample(logits, greedy, 0, mask=np.zeros(6, bool))[0].tolist() == [-1, -1]
    punished = nn.SamplingParams(temperature=0, presence_penalty=1000.0)
    history = [[int(best[0])], [int(best[1])] * 3]
    assert nn.sample(logits, punished, 0, history=history)[0].tolist() == second.tolist()
    x = F.penalize_tokens(logits, np.array([[0, 0, 5], [1, -1, -1]]), 2.0, 0.5, 0.25).numpy()
    for row, token, n in ((0, 0, 2), (0, 5, 1), (1, 1, 1)):
        value = logits[row, token]
        assert x[row, token] == pytest.approx((value / 2 if value > 0 else value * 2) - 0.5 * n - 0.25, rel=1e-6)
    assert (x[1, 2:] == logits[1, 2:]).all()


def test_ends_of_sequences() -> None:
    params = nn.SamplingParams(stop=(3, (1, 2)), max_new_tokens=4)
    assert not params.is_finished([]) and not params.is_finished([1]) and not params.is_finished([2, 1])
    assert params.is_finished([1, 3]) and params.is_finished([0, 1, 2]) and params.is_finished([0, 0, 0, 0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "1"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("min_p", -0.1),
        ("repetition_penalty", 0),
        ("frequency_penalty", float("inf")),
        ("seed", 1 << 63),
        ("seed", True),
        ("max_new_tokens", -1),
    ],
)
def test_numbers_outside_of_their_range(name: str, value: Any) -> None:
    with pytest.raises(EinkornError) as caught:
        nn.SamplingParams(**{name: value})
    assert (caught.value.code, caught.value.argument) == ("EK0473", name)
    assert caught.value.place is not None and caught.value.place.file == __file__


def test_lists_of_another_length() -> None:
    logits = np.zeros((2, 6), np.float32)
    greedy = nn.SamplingParams(temperature=0)
    punished = nn.SamplingParams(presence_penalty=1.0)
    cases: list[tuple[str, Any]] = [
        ("params", lambda: nn.sample(logits, [greedy], 0)),
        ("step", lambda: nn.sample(logits, greedy, [1, 2, 3])),
        ("history", lambda: nn.sample(logits, punished, 0, history=[[1]])),
        ("history[1]", lambda: nn.sample(logits, punished, 0, history=[[1], [2, 6]])),
    ]
    for argument, case in cases:
        with pytest.raises(EinkornError) as caught:
            case()
        assert (caught.value.code, caught.value.argument) == ("EK0473", argument)


@pytest.mark.parametrize(
    ("argument", "value", "code"),
    [
        ("top_k", np.array([1.0, 2.0]), "EK0413"),
        ("seed", np.array([1.0, 2.0], np.float32), "EK0413"),
        ("step", np.array([True, False]), "EK0413"),
        ("top_k", 1.5, "EK0412"),
        ("top_k", -1, "EK0414"),
        ("top_p", 1.5, "EK0414"),
        ("top_p", math.nan, "EK0414"),
        ("min_p", -0.1, "EK0414"),
        ("temperature", math.nan, "EK0414"),
        ("temperature", np.float32(-1), "EK0414"),
        ("temperature", math.inf, "EK0414"),
        ("temperature", np.array([1j, 2j]), "EK0413"),
        ("seed", math.nan, "EK0414"),
    ],
)
def test_numbers_of_the_op_are_checked_where_it_is_called(argument: str, value: Any, code: str) -> None:
    logits = Tensor.from_numpy(np.zeros((2, 5), np.float32))
    given = Tensor.from_numpy(value) if isinstance(value, np.ndarray) else value
    with pytest.raises(EinkornError) as caught:
        F.sample_tokens(logits, **{argument: given})
    assert (caught.value.code, caught.value.argument) == (code, argument)
    assert caught.value.place is not None and caught.value.place.file == __file__


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("step", {"step": 1.5}),
        ("step", {"step": [0.0, 1.0]}),
        ("step", {"step": [[0], [1, 2]]}),
        ("history[1]", {"history": [[1], [1.0]]}),
        ("logits", {"logits": np.zeros(5, np.float32)}),
        ("params", {"params": [nn.SamplingParams(), {"top_k": 3}]}),
    ],
)
def test_what_is_no_row_of_integers_is_refused(argument: str, given: Any) -> None:
    known = {"logits": np.zeros((2, 5), np.float32), "params": nn.SamplingParams(repetition_penalty=2), "step": 0}
    with pytest.raises(EinkornError) as caught:
        nn.sample(**known | given)
    assert (caught.value.code, caught.value.argument) == ("EK0473", argument)
    assert caught.value.place is not None and caught.value.place.file == __file__


@pytest.mark.parametrize("stop", [[3], 3, "a", (1.5,), ("",), ((),), (b"a",), ((1, -2),), (True,), (None,)])
def test_stops_are_tokens_and_texts(stop: Any) -> None:
    with pytest.raises(EinkornError) as caught:
        nn.SamplingParams(stop=stop)
    assert caught.value.argument == "stop"
