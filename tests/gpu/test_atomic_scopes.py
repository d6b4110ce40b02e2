"""Each atomic operation and each fence has its scope in the code of a GPU, whatever its kind, dtype and ordering."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import harness

from einkorn.dsl import DType

HEAD = """\
from einkorn.dsl import *

def thread(x):
    i = gpu.thread_idx.x
    kept = gpu.shared[{dtype}](256)
{lines}

@register("op")
def op(x: MutableInputTensor[{dtype}, "n"], ctx: DeviceContext):
    ctx.launch(thread, x, grid=1, block=32)
"""
FIRST = 6  # the line of the first operation
KINDS = ("add", "sub", "min", "max", "exchange", "and_", "or_", "xor")
ORDERINGS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
WORDS = {"block": "cta", "cluster": "cluster", "device": "gpu", "system": "sys"}
RANK = ("cta", "cluster", "gpu", "sys")


def operations(dtype: str, scope: str) -> list[str]:
    """One line for each kind and ordering, on memory of the device and of the block by turns."""
    collected: list[str] = []
    for ordering in ORDERINGS:
        how = f'ordering="{ordering}", scope="{scope}"'
        for kind in KINDS[: 5 if dtype.startswith(("f", "b")) else 8]:
            where = ("x", "kept")[len(collected) % 2]
            collected.append(f"x[i] = atomic.{kind}({where}, {len(collected)}, {dtype}(3), {how})")
        collected.append(f"x[i] = atomic.compare_exchange(x, {len(collected)}, {dtype}(3), {dtype}(4), {how})")
        if ordering in ("relaxed", "acquire", "seq_cst"):
            collected.append(f"x[i] = atomic.load(x, {len(collected)}, {how})")
        if ordering in ("relaxed", "release", "seq_cst"):
            collected.append(f"atomic.store(x, {len(collected)}, {dtype}(5), {how})")
        if ordering != "relaxed":
            collected.append(f"x[i] = kept[1]; gpu.fence({how}); kept[2] = x[0]")  # alone: LLVM joins neighbours
    return collected


def lines_of(tmp_path: Path, dtype: str, scope: str, target: str) -> list[tuple[str, list[str]]]:
    """Each operation with the instructions of its line."""
    written = operations(dtype, scope)
    file = tmp_path / f"{dtype}_{scope}.py"
    file.write_text(HEAD.format(dtype=dtype, lines="\n".join(f"    {line}" for line in written)))
    asm = harness.compile_kernel(file, "op", [(DType[dtype], (1000,))], target=target)[0].asm
    collected: dict[int, list[str]] = {}
    line = 0
    for text in asm.splitlines():
        if placed := re.match(r"\s*\.loc\s+\d+ (\d+)", text):
            line = int(placed[1])
        elif text.startswith("\t"):
            collected.setdefault(line, []).append(text.strip())
    return [(each, collected.get(FIRST + number, [])) for number, each in enumerate(written)]


@pytest.mark.parametrize("scope", WORDS)
@pytest.mark.parametrize(
    ("target", "dtype"),
    [("sm_75", "int16"), ("sm_80", "uint64"), ("sm_80", "float16"), ("sm_90a", "int32"), ("sm_90a", "float32")],
)
def test_ptx(target: str, dtype: str, scope: str, tmp_path: Path) -> None:
    least = WORDS[scope] if target == "sm_90a" or scope != "cluster" else "cta"  # a cluster of one block
    for operation, code in lines_of(tmp_path, dtype, scope, target):
        orders = [
            text for text in code if re.match(r"(@\S+ )?(atom|red|fence|[ls][dt]\.(relaxed|acquire|release))\b", text)
        ]
        assert orders, (operation, code)
        for text in orders:
            said = re.search(r"\.(cta|cluster|gpu|sys)\b", text)
            has = said[1] if said else "gpu"  # what PTX means where nothing is said
            assert RANK.index(has) >= RANK.index(least), (operation, text)
            assert has != "sys" or scope == "system", (operation, text)


def test_amdgcn(tmp_path: Path) -> None:
    """On this GPU `sc1` makes what is outside of a multiprocessor's cache agree: of the device, and of the system."""
    for scope, wanted in (("system", True), ("block", False)):
        for operation, code in lines_of(tmp_path, "int32", scope, "gfx942"):
            if re.match(r"x\[i\] = atomic\.\w+\(x", operation) and "load" not in operation:
                # An index out of bounds is reported by an exchange of 64 bits, which has a scope of its own.
                texts = [text for text in code if re.match(r"global_atomic_(?!cmpswap_x2)", text)]
                assert {"sc1" in text.split() for text in texts} == {wanted}, (operation, texts)
