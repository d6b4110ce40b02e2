"""Trains a small Llama over bytes on texts that ship with Python, and streams text from GGUF files.

    python examples/models/generate.py                       # trains unless the files are there, then streams from each
    python examples/models/generate.py train --seconds 900   # needs PyTorch; writes three files
    python examples/models/generate.py stream bytes-q8_0.gguf --prompt "def "
    python examples/models/generate.py judge bytes-*.gguf    # the loss of each on texts that are held out

Streaming needs nothing but Einkorn: the file is mapped, its metadata has the sizes of the network, the layers take the
encoding that the file has, and a generator keeps keys and values in pages.

An idle core trains on about 3800 bytes a second where it multiplies bfloat16; elsewhere training is in float32. After
2.8 million bytes of all sources of the standard library the held-out loss was 1.471 nats a byte in float32 and in Q8_0,
and 1.474 in Q4_0. The text has the form of Python, and many of its words are made up.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from einkorn import functional as F
from einkorn.graph import DeviceRef, DType, TensorType, nn
from einkorn.graph.weights import GGUFWeights, write_gguf

VOCABULARY = 256
FORMATS = ("f32", "q8_0", "q4_0")
PAGE = 16  # places of a page of keys and values


@dataclass(frozen=True)
class Sizes:
    """The sizes of the network."""

    dim: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 768
    length: int = 256

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


TRAINED = Sizes()
RATE = 3e-3  # of learning, at most


class Layer(nn.Module):
    """Attention and a gated block, each behind a norm and added to what it takes."""

    def __init__(self, sizes: Sizes, number: int, rope: nn.RotaryEmbedding) -> None:
        self.number = number
        self.attn_norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        self.attn = nn.Attention(sizes.dim, sizes.heads, sizes.kv_heads, fused=False, rope=rope)
        self.ffn_norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        self.ffn = nn.MLP(sizes.dim, sizes.hidden)

    def forward(self, x: Any, cache: Any = None) -> Any:
        h = self.attn_norm(x)
        x = x + (self.attn(h) if cache is None else self.attn.paged(h, cache, self.number))
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    """The network: bytes to logits of the next byte."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.token_embd = nn.Embedding(VOCABULARY, sizes.dim)
        rope = nn.RotaryEmbedding.of(sizes.head_dim, sizes.length)
        self.blk = nn.ModuleList(Layer(sizes, number, rope) for number in range(sizes.layers))
        self.output_norm = nn.RMSNorm(sizes.dim, eps=1e-5)
        self.output = nn.Linear(sizes.dim, VOCABULARY, bias=False)

    def forward(self, tokens: Any, cache: Any = None) -> Any:
        """Logits of the byte behind each of the tokens (batch, length).

        With the cache of a generator the tokens are those of all its sequences (rows), and logits those of the byte
        behind the last one of each.
        """
        x = self.token_embd(tokens)
        for layer in self.blk:
            x = layer(x, cache)
        return self.output(self.output_norm(x if cache is None else cache.last_rows(x)))


# *** files ***

# The names of a layer's weights here, and in GGUF files.
NAMES = {
    "attn_norm": "attn_norm",
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.o_proj": "attn_output",
    "ffn_norm": "ffn_norm",
    "ffn.gate_proj": "ffn_gate",
    "ffn.up_proj": "ffn_up",
    "ffn.down_proj": "ffn_down",
}


def name_in_file(name: str) -> str:
    """The name that a GGUF file has for a parameter."""
    if not name.startswith("blk."):
        return name
    _, number, rest = name.split(".", 2)
    return f"blk.{number}.{NAMES[rest.removesuffix('.weight')]}.weight"


def is_table(name: str) -> bool:
    """Whether a parameter is computed, and not in files."""
    return name.endswith("rope.weight")


def save(path: Path, model: Llama, format: str) -> None:
    """Writes the network as GGUF; matrices in the format, norms in float32."""
    tensors, encodings = {}, {}
    for name, parameter in model.parameters:
        if is_table(name):
            continue
        if format != "f32" and parameter.rank == 2:
            encodings[name_in_file(name)] = format
            parameter = F.quantize(format, parameter)
        tensors[name_in_file(name)] = parameter.numpy()
    sizes = model.sizes
    metadata = {
        "general.architecture": "llama",
        "general.name": "bytes",
        "tokenizer.ggml.model": "none",  # tokens are bytes
        "llama.vocab_size": VOCABULARY,
        "llama.block_count": sizes.layers,
        "llama.context_length": sizes.length,
        "llama.embedding_length": sizes.dim,
        "llama.feed_forward_length": sizes.hidden,
        "llama.attention.head_count": sizes.heads,
        "llama.attention.head_count_kv": sizes.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": sizes.head_dim,
    }
    write_gguf(path, tensors, metadata, encodings=encodings)


def load(path: Path) -> Llama:
    """The network of a file, over the mapped file."""
    weights = GGUFWeights(path)
    known = weights.metadata
    sizes = Sizes(
        dim=known["llama.embedding_length"],
        layers=known["llama.block_count"],
        heads=known["llama.attention.head_count"],
        kv_heads=known["llama.attention.head_count_kv"],
        hidden=known["llama.feed_forward_length"],
        length=known["llama.context_length"],
    )
    with F.lazy():  # the numbers that layers begin with are never computed
        model = Llama(sizes)
        model.load_state(lambda name, table: table if is_table(name) else weights[name_in_file(name)].data())
    return model


# *** streaming ***


def generator(model: Llama, sequences: int = 1, dtype: DType = DType.float32) -> nn.Generator:
    """A generator with room for so many sequences, whose keys and values are numbers of a dtype."""
    sizes = model.sizes
    params = nn.KVCacheParams(dtype, sizes.kv_heads, sizes.head_dim, sizes.layers, page_size=PAGE)
    pages = sequences * -(-sizes.length // PAGE)
    return nn.Generator(model, nn.PagedKVCacheManager(params, pages), max_batch_size=sequences)


def judged(model: Llama, data: bytes, length: int = 257, batch: int = 16) -> float:
    """The loss of a network on texts, in nats a byte."""
    logits = model.compile(TensorType(DType.int64, ["batch", length - 1], DeviceRef.CPU()))
    rows = np.frombuffer(data[: len(data) // length * length], np.uint8).reshape(-1, length).astype(np.int64)
    total = 0.0
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        scores = logits(some[:, :-1]).numpy().astype(np.float64)
        scores -= scores.max(-1, keepdims=True)
        likelihoods = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        total -= np.take_along_axis(likelihoods, some[:, 1:, None], -1).sum()
    return total / rows[:, 1:].size


# *** training ***


def texts() -> bytes:
    """Texts that ship with Python: the modules of its standard library and its reference, indented by tabs."""
    import pydoc_data.topics
    import sysconfig

    pieces = [file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
    pieces += [text.encode() for text in pydoc_data.topics.topics.values()]
    return b"\n".join(pieces).replace(b"    ", b"\t")


def split(data: bytes, length: int = 4096) -> tuple[bytes, bytes]:
    """Texts to train on, and a piece of each of 16 places that are held out."""
    step = len(data) // 16
    held = b"".join(data[i : i + min(length, step // 2)] for i in range(0, 16 * step, step))
    rest = b"".join(data[i + min(length, step // 2) : i + step] for i in range(0, 16 * step, step))
    return rest, held


def trained(model: Llama, data: bytes, seconds: float, batch: int, threads: int | None) -> tuple[dict[str, Any], float]:
    """Trains the network with PyTorch for so long; gives its state, and its loss on held-out texts in nats a byte."""
    import torch
    from torch.nn import functional as T

    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes, length = model.sizes, model.sizes.length
    state = {name: torch.from_numpy(t.numpy().copy()) for name, t in model.parameters if not is_table(name)}
    for tensor in state.values():
        if tensor.ndim == 2:
            torch.nn.init.normal_(tensor, std=0.02)
        tensor.requires_grad_(True)
    table = torch.from_numpy(model.blk[0].attn.rope.weight.numpy().copy())
    numbers, held = (torch.frombuffer(bytearray(part), dtype=torch.uint8).long() for part in split(data))
    optimizer = torch.optim.AdamW(state.values(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.05)

    def norm(x: Any, name: str) -> Any:
        return T.rms_norm(x, (sizes.dim,), state[name], 1e-5)

    def turned(x: Any) -> Any:
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = table[: x.shape[1], None].unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    def logits(tokens: Any) -> Any:
        x = state["token_embd.weight"][tokens]
        for number in range(sizes.layers):
            at = f"blk.{number}"
            h = norm(x, f"{at}.attn_norm.weight")
            q, k, v = (
                (h @ state[f"{at}.attn.{name}_proj.weight"].T).unflatten(-1, (-1, sizes.head_dim)) for name in "qkv"
            )
            q, k, v = (each.transpose(1, 2) for each in (turned(q), turned(k), v))
            h = T.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + h.transpose(1, 2).flatten(2) @ state[f"{at}.attn.o_proj.weight"].T
            h = norm(x, f"{at}.ffn_norm.weight")
            gate, up, down = (state[f"{at}.ffn.{name}_proj.weight"] for name in ("gate", "up", "down"))
            x = x + (T.silu(h @ gate.T) * (h @ up.T)) @ down.T
        return norm(x, "output_norm.weight") @ state["output.weight"].T

    def loss(start: Any, source: Any) -> Any:
        rows = torch.stack([source[s : s + length + 1] for s in start.tolist()])
        with torch.autocast("cpu", torch.bfloat16, enabled=is_narrow):
            scores = logits(rows[:, :-1])
        return T.cross_entropy(scores.float().flatten(0, 1), rows[:, 1:].flatten())

    def seconds_of_a_step() -> float:
        loss(torch.zeros(1, dtype=torch.int64), numbers).backward()
        start = time.perf_counter()
        loss(torch.zeros(1, dtype=torch.int64), numbers).backward()
        return time.perf_counter() - start

    times = {}
    for is_narrow in (False, True):  # bfloat16 is emulated where the processor has no products of it
        times[is_narrow] = seconds_of_a_step()
    is_narrow = times[True] < times[False]
    print(f"{'bfloat16' if is_narrow else 'float32'}: a row takes {times[is_narrow]:.2f} s", flush=True)
    begun, step = time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < seconds:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 50) * max(0.05, 1 - spent / seconds)
        value = loss(torch.randint(len(numbers) - length - 1, (batch,)), numbers)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(state.values(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"{spent:6.0f} s  step {step:5}  {value.item():.3f} nats a byte", flush=True)
        step += 1
    with torch.no_grad():
        final = loss(torch.arange(0, len(held) - length, length + 1), held).item()
    return {name: tensor.detach().numpy() for name, tensor in state.items()}, final


def train(arguments: argparse.Namespace) -> None:
    """Trains, and writes the files."""
    model = Llama(TRAINED)
    state, loss = trained(model, texts(), arguments.seconds, arguments.batch, arguments.threads)
    print(f"held-out loss: {loss:.3f} nats a byte")
    model.load_state(lambda name, table: table if is_table(name) else state[name])
    for format in FORMATS:
        path = arguments.folder / f"bytes-{format}.gguf"
        save(path, model, format)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def stream(arguments: argparse.Namespace) -> None:
    """Streams text from a file."""
    params = nn.SamplingParams(
        temperature=arguments.temperature,
        top_p=arguments.top_p,
        seed=arguments.seed,
        max_new_tokens=arguments.count,
    )
    made = generator(load(arguments.file))
    sys.stdout.write(arguments.prompt)
    for byte in made.stream(arguments.prompt, params):
        sys.stdout.buffer.write(bytes([byte])) if byte >= 32 or byte in b"\n\t" else None
        sys.stdout.flush()
    figures = made.figures
    print(f"\n[{figures.tokens} bytes, {figures.tokens_per_second:.0f} a second]", file=sys.stderr)


def judge(arguments: argparse.Namespace) -> None:
    """Prints the losses of files."""
    held = split(texts())[1]
    for file in arguments.files:
        print(f"{file}: {judged(load(file), held):.4f} nats a byte", flush=True)


def everything(arguments: argparse.Namespace) -> None:
    """Streams from the three files of the folder, which are trained before if they are not there."""
    files = [arguments.folder / f"bytes-{format}.gguf" for format in FORMATS]
    if not all(file.exists() for file in files):
        train(arguments)
    for arguments.file in files:
        print(f"*** {arguments.file} ***")
        stream(arguments)


def main() -> None:
    """Reads the command line."""
    trained_by = argparse.ArgumentParser(add_help=False)
    trained_by.add_argument("--seconds", type=float, default=900)
    trained_by.add_argument("--batch", type=int, default=4)
    trained_by.add_argument("--threads", type=int)
    trained_by.add_argument("--folder", type=Path, default=Path())
    streamed_by = argparse.ArgumentParser(add_help=False)
    streamed_by.add_argument("--prompt", default="def ")
    streamed_by.add_argument("--count", type=int, default=200)
    streamed_by.add_argument("--temperature", type=float, default=0.7)
    streamed_by.add_argument("--top-p", type=float, default=0.9)
    streamed_by.add_argument("--seed", type=int, default=0)
    described = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=described, parents=[trained_by, streamed_by])
    parser.set_defaults(run=everything)
    commands = parser.add_subparsers()
    training = commands.add_parser("train", parents=[trained_by], help="train with PyTorch, and write three files")
    training.set_defaults(run=train)
    streaming = commands.add_parser("stream", parents=[streamed_by], help="stream text from a file")
    streaming.add_argument("file", type=Path)
    streaming.set_defaults(run=stream)
    judging = commands.add_parser("judge", help="print the losses of files on texts that are held out")
    judging.add_argument("files", type=Path, nargs="+")
    judging.set_defaults(run=judge)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
