"""Measures generators, sampling and a mixture of experts; where there is a peer, next to PyTorch.

    python benchmarks/models_serving.py            # all rows
    python benchmarks/models_serving.py tokens     # those whose names begin so

One thread and processor time; medians. `ROWS` gives the rows to other benchmarks. Weights are random. Generators are
compared with llama.cpp where llama-cpp-python is installed: both keep keys and values in float32, read the same file,
and take the likeliest token.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("EINKORN_NUM_THREADS", "1")

import numpy as np
from einkorn.tensor import Tensor

from einkorn.graph import DeviceRef, DType, TensorType, nn
from einkorn.graph.loading.background import BACKGROUND

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "models"))
from generate import Llama, Sizes, generator, load, save


@dataclass(frozen=True)
class ServingRow:
    """Milliseconds of Einkorn and of a peer, if there is one, and how many tokens they are for."""

    ours: float
    theirs: float | None = None
    peer: str = ""
    tokens: int = 0


SIZES = {"3 M": Sizes(), "100 M": Sizes(dim=768, layers=12, heads=12, kv_heads=4, hidden=2304)}
ROUNDS = 15
WARM_CALLS = 10
PROMPT = 100  # tokens before the first that is timed
_CALLBACKS: list[Any] = []


def _medians(*calls: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
    """Milliseconds of the processor for a call of each, by turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(WARM_CALLS):
            call()
    BACKGROUND.wait()  # after some calls of a model there is native code for them, made by another thread
    for _ in range(rounds):
        for call, spent in zip(calls, times, strict=True):
            start = time.process_time()
            call()
            spent.append(time.process_time() - start)
    return [statistics.median(spent) * 1e3 for spent in times]


def _median(call: Callable[[], Any]) -> float:
    return _medians(call)[0]


def llama_cpp_step(path: Path, sequences: int) -> Callable[[], None]:
    """A step of llama.cpp in which each of some sequences gets a token, behind prompts."""
    import llama_cpp as library

    silent = library.llama_log_callback(lambda level, text, data: None)
    _CALLBACKS.append(silent)  # the library keeps its address
    library.llama_log_set(silent, None)
    settings = library.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_seq_max = 256 * sequences, 256 * sequences, sequences
    settings.n_threads = settings.n_threads_batch = 1
    settings.type_k = settings.type_v = library.GGML_TYPE_F32
    model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
    context = library.llama_init_from_model(model, settings)
    batch = library.llama_batch_init(PROMPT * sequences, 0, 1)
    vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    rng = np.random.default_rng(0)
    places = [0]

    def decode(tokens: Sequence[Sequence[int]]) -> list[list[int]]:
        """The likeliest tokens behind those of each sequence."""
        count, last = 0, []
        for sequence, some in enumerate(tokens):
            for k, token in enumerate(some):
                batch.token[count], batch.pos[count], batch.n_seq_id[count] = token, places[0] + k, 1
                batch.seq_id[count][0], batch.logits[count] = sequence, k == len(some) - 1
                count += 1
            last.append(count - 1)
        batch.n_tokens = count
        if library.llama_decode(context, batch):
            raise RuntimeError("llama.cpp: decoding failed")
        places[0] += len(tokens[0])
        rows = [np.ctypeslib.as_array(library.llama_get_logits_ith(context, row), (vocabulary,)) for row in last]
        return [[int(row.argmax())] for row in rows]

    state = [decode([rng.integers(0, 256, PROMPT).tolist() for _ in range(sequences)])]

    def step() -> None:
        state[0] = decode(state[0])

    return step


def step(size: str, encoding: str, sequences: int) -> ServingRow:
    """A step of a generator in which each of some sequences gets a token."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        save(path, Llama(SIZES[size]), encoding)
        model = load(path)  # the mapped file outlives its name
        other = llama_cpp_step(path, sequences) if importlib.util.find_spec("llama_cpp") else None
    made = generator(model, sequences)
    rng = np.random.default_rng(0)
    for _ in range(sequences):
        made.submit(rng.integers(0, 256, PROMPT).tolist(), nn.SamplingParams(temperature=0))
    while not made.figures.tokens:
        made.step()
    if other is None:
        return ServingRow(_median(made.step), tokens=sequences)
    ours, theirs = _medians(made.step, other)
    return ServingRow(ours, theirs, "llama.cpp", sequences)


def sampled(vocabulary: int, **params: Any) -> ServingRow:
    """The next token of a row of logits."""
    logits = Tensor.from_numpy(np.random.default_rng(0).standard_normal((1, vocabulary)).astype(np.float32) * 3)
    chosen = nn.SamplingParams(seed=1, **params)
    return ServingRow(_median(lambda: nn.sample(logits, chosen, 0)[0].tolist()), tokens=1)


def experts(rows: int, dim: int = 512, hidden: int = 1024, number: int = 8, per_token: int = 2) -> ServingRow:
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
        return ServingRow(*_medians(lambda: compiled(x), theirs), "PyTorch")


ROWS: dict[str, Callable[[], ServingRow]] = {
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


def needs(name: str) -> Sequence[str]:
    """The libraries without which a row of `ROWS` cannot be measured."""
    return ("torch",) if name.startswith("experts") else ()


def main() -> None:
    for name, measure in ROWS.items():
        if not sys.argv[1:] or name.startswith(tuple(sys.argv[1:])):
            row = measure()
            theirs = "" if row.theirs is None else f"{row.peer} {row.theirs:9.3f} ms"
            print(f"{name:45} {row.ours:9.3f} ms  {theirs}", flush=True)


if __name__ == "__main__":
    main()
