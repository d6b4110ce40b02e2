"""Measures generators, sampling and a mixture of experts; where there is a peer, next to PyTorch.

    python benchmarks/models_serving.py            # all rows
    python benchmarks/models_serving.py tokens     # those whose names begin so

One thread and processor time; medians. `ROWS` gives the rows to other benchmarks: each is a function that returns
milliseconds of Einkorn, and of the peer or None. Weights are random.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("EINKORN_NUM_THREADS", "1")

import numpy as np
from einkorn.tensor import Tensor

from einkorn.graph import DeviceRef, DType, TensorType, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "models"))
from generate import Llama, Sizes, generator, load, save

Measured = tuple[float, float | None]

SIZES = {"3 M": Sizes(), "100 M": Sizes(dim=768, layers=12, heads=12, kv_heads=4, hidden=2304)}
ROUNDS = 15
PROMPT = 100  # tokens before the first that is timed


def _median(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Milliseconds of the processor for a call."""
    call()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e3


def step(size: str, encoding: str, sequences: int) -> Measured:
    """A step of a generator in which each of some sequences gets a token."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        save(path, Llama(SIZES[size]), encoding)
        model = load(path)  # the mapped file outlives its name
    made = generator(model, sequences)
    rng = np.random.default_rng(0)
    for _ in range(sequences):
        made.submit(rng.integers(0, 256, PROMPT).tolist(), nn.SamplingParams(temperature=0))
    while not made.figures.tokens:
        made.step()
    return _median(made.step), None


def sampled(vocabulary: int, **params: Any) -> Measured:
    """The next token of a row of logits."""
    logits = Tensor.from_numpy(np.random.default_rng(0).standard_normal((1, vocabulary)).astype(np.float32) * 3)
    chosen = nn.SamplingParams(seed=1, **params)
    return _median(lambda: nn.sample(logits, chosen, 0)[0].tolist()), None


def experts(rows: int, dim: int = 512, hidden: int = 1024, number: int = 8, per_token: int = 2) -> Measured:
    """A mixture of experts, next to a loop over experts of PyTorch."""
    import torch

    torch.set_num_threads(1)
    layer = nn.MoE(dim, hidden, number, per_token)
    compiled = layer.compile(TensorType(DType.float32, ["rows", dim], DeviceRef.CPU()))
    x = np.random.default_rng(0).standard_normal((rows, dim)).astype(np.float32)
    w = {name: torch.from_numpy(t.numpy().copy()) for name, t in layer.parameters}
    given = torch.from_numpy(x)

    def theirs() -> Any:
        scores, chosen = (given @ w["gate.gate_score.weight"].T).softmax(-1).topk(per_token)
        scores = scores / scores.sum(-1, keepdim=True)
        out = torch.zeros_like(given)
        for expert in range(number):
            at, place = (chosen == expert).nonzero(as_tuple=True)
            some = given[at]
            gate, up, down = (w[f"{each}_proj"][expert] for each in ("gate", "up", "down"))
            made = (torch.nn.functional.silu(some @ gate.T) * (some @ up.T)) @ down.T
            out.index_add_(0, at, made * scores[at, place, None])
        return out

    with torch.no_grad():
        return _median(lambda: compiled(x)), _median(theirs)


ROWS: dict[str, Callable[[], Measured]] = {
    **{
        f"tokens: {size}, {encoding}, {count} sequences": lambda s=size, e=encoding, c=count: step(s, e, c)
        for size in SIZES
        for encoding in ("f32", "q8_0", "q4_0")
        for count in (1, 16)
    },
    "sampling: a row of 128256, top-p 0.9": lambda: sampled(128256, top_p=0.9),
    "sampling: a row of 128256, top-k 40": lambda: sampled(128256, top_k=40),
    "experts: 8, 256 rows": lambda: experts(256),
}


def main() -> None:
    for name, measure in ROWS.items():
        if not sys.argv[1:] or name.startswith(tuple(sys.argv[1:])):
            ours, theirs = measure()
            print(f"{name:45} {ours:9.3f} ms {'' if theirs is None else f'{theirs:9.3f} ms'}", flush=True)


if __name__ == "__main__":
    main()
