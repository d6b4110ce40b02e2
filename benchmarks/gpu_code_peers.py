"""Kernels in Triton for the same work as built-in ops, compiled without a GPU: the peers of `gpu_code.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@dataclass(frozen=True)
class Peer:
    """A kernel with its grid, the dtypes of its pointers, its compile-time numbers, and its warps."""

    kernel: Any
    pointers: str
    numbers: Mapping[str, int]
    blocks: int
    warps: int = 4
    integers: str = ""
    floats: str = ""


def ptx(peer: Peer, architecture: int) -> tuple[str, int]:
    """The PTX of a peer, and its bytes of shared memory; pointers and sizes are multiples of 16."""
    names = peer.kernel.arg_names
    types = [f"*{each}" for each in peer.pointers.split()]
    types += ["fp32"] * len(peer.floats.split()) + ["i32"] * len(peer.integers.split())
    signature = dict(zip(names, types, strict=False)) | dict.fromkeys(peer.numbers, "constexpr")
    constants = {(names.index(name),): value for name, value in peer.numbers.items()}
    aligned = {(k,): [["tt.divisibility", 16]] for k, type in enumerate(types) if type != "fp32"}
    source = ASTSource(fn=peer.kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": peer.warps, "num_stages": 3}
    kernel = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    text = re.sub(r"^\.version 9\.\d", ".version 9.0", str(kernel.asm["ptx"]), flags=re.M)  # which older ptxas know
    return text, int(kernel.metadata.shared)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def exponential(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.exp(tl.load(x + i, mask=inside).to(tl.float32)), mask=inside)


@triton.jit
def softmax(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    value = tl.load(x + row + i, mask=i < n, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + i, power / tl.sum(power, 0), mask=i < n)


@triton.jit
def layer_norm(x, gamma, beta, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    value = tl.load(x + row + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / n
    centered = tl.where(i < n, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centered * centered, 0) / n + 1e-5)
    weight, shift = tl.load(gamma + i, mask=i < n), tl.load(beta + i, mask=i < n)
    tl.store(out + row + i, centered * scale * weight + shift, mask=i < n)


@triton.jit
def rms_norm(x, weight, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    value = tl.load(x + row + i, mask=i < n, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / n + 1e-5)
    tl.store(out + row + i, value * scale * tl.load(weight + i, mask=i < n), mask=i < n)


@triton.jit
def row_sum(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    tl.store(out + row, tl.sum(tl.load(x + row * stride + i, mask=i < n, other=0.0), 0))


@triton.jit
def row_argmax(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    tl.store(out + row, tl.argmax(tl.load(x + row * stride + i, mask=i < n, other=-float("inf")), 0).to(tl.int64))


@triton.jit
def row_cumsum(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    tl.store(out + row + i, tl.cumsum(tl.load(x + row + i, mask=i < n, other=0.0), 0), mask=i < n)


@triton.jit
def column_sum(x, parts, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(STEPS):
        rows = (tl.program_id(1) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = (rows < m)[:, None] & (columns < n)[None, :]
        total += tl.load(x + rows[:, None] * n + columns[None, :], mask=inside, other=0.0)
    tl.store(parts + tl.program_id(1) * n + columns, tl.sum(total, 0), mask=columns < n)


@triton.jit
def transpose(x, out, m, n, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    value = tl.load(x + rows[:, None] * n + columns[None, :], mask=inside)
    tl.store(out + columns[:, None] * m + rows[None, :], tl.trans(value), mask=tl.trans(inside))


@triton.jit
def gather(x, index, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    value = tl.load(x + tl.load(index + row) * stride + i, mask=i < n)
    tl.store(out + row * stride + i, value, mask=i < n)


@triton.jit
def one_row(a, b, parts, k, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(STEPS):
        rows = (tl.program_id(1) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        weight = tl.load(a + rows).to(tl.float32)
        value = tl.load(b + rows[:, None] * n + columns[None, :], mask=(columns < n)[None, :], other=0.0)
        total += weight[:, None] * value.to(tl.float32)
    tl.store(parts + tl.program_id(1) * n + columns, tl.sum(total, 0), mask=columns < n)


@triton.jit
def product(a, b, out, m, n, k, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    inner = tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, k, TK):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + rows[:, None] * n + columns[None, :], total.to(out.dtype.element_ty))


@triton.jit
def flash(q, k, v, out, scale, n, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inner, head = tl.arange(0, SIZE), tl.program_id(1) * n * SIZE
    queries = tl.load(q + head + rows[:, None] * SIZE + inner[None, :])
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    acc = tl.zeros((ROWS, SIZE), tl.float32)
    factor = scale * 1.44269504
    for start in range(0, n, KEYS):
        keys = start + tl.arange(0, KEYS)
        s = tl.dot(queries, tl.load(k + head + keys[None, :] * SIZE + inner[:, None]))
        new = tl.maximum(top, tl.max(s, 1) * factor)
        p = tl.math.exp2(s * factor - new[:, None])
        old = tl.math.exp2(top - new)
        total = total * old + tl.sum(p, 1)
        values = tl.load(v + head + keys[:, None] * SIZE + inner[None, :])
        acc = tl.dot(p.to(tl.bfloat16), values, acc * old[:, None])
        top = new
    tl.store(out + head + rows[:, None] * SIZE + inner[None, :], (acc / total[:, None]).to(tl.bfloat16))


def _rows(kernel: Any, pointers: str, block: int, rows: int, warps: int = 4) -> Peer:
    return Peer(kernel, pointers, {"BLOCK": block}, rows, warps, "stride n")


PEERS: dict[str, Peer] = {
    "add": Peer(add, "fp32 fp32 fp32", {"BLOCK": 1024}, 4096, 4, "n"),
    "exp": Peer(exponential, "fp32 fp32", {"BLOCK": 1024}, 4096, 4, "n"),
    "exp fast": Peer(exponential, "fp32 fp32", {"BLOCK": 1024}, 4096, 4, "n"),
    "softmax": _rows(softmax, "fp32 fp32", 1024, 4096),
    "softmax bf16": _rows(softmax, "bf16 bf16", 1024, 4096),
    "softmax long": _rows(softmax, "fp32 fp32", 4096, 1024, 8),
    "layer_norm": _rows(layer_norm, "fp32 fp32 fp32 fp32", 1024, 4096),
    "rms_norm": _rows(rms_norm, "fp32 fp32 fp32", 1024, 4096),
    "sum of rows": _rows(row_sum, "fp32 fp32", 1024, 4096),
    "sum of columns": Peer(column_sum, "fp32 fp32", {"ROWS": 8, "COLUMNS": 128, "STEPS": 16}, 256, 4, "m n"),
    "argmax": _rows(row_argmax, "fp32 i64", 1024, 4096),
    "cumsum": _rows(row_cumsum, "fp32 fp32", 1024, 4096),
    "transpose": Peer(transpose, "fp32 fp32", {"TILE": 64}, 1024, 4, "m n"),
    "gather": _rows(gather, "fp32 i64 fp32", 512, 4096),
    "product of one row": Peer(one_row, "bf16 bf16 fp32", {"ROWS": 16, "COLUMNS": 128, "STEPS": 16}, 512, 4, "k n"),
    "matmul bf16": Peer(product, "bf16 bf16 bf16", {"TM": 128, "TN": 128, "TK": 64}, 1024, 4, "m n k"),
    "attention bf16": Peer(flash, "bf16 bf16 bf16 bf16", {"ROWS": 128, "KEYS": 64, "SIZE": 64}, 512, 4, "n", "scale"),
    "matmul": Peer(product, "fp32 fp32 fp32", {"TM": 128, "TN": 128, "TK": 16}, 256, 8, "m n k"),
}
