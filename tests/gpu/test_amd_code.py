"""Machine code of built-in ops for AMD's GPUs: 16 bytes an access, nothing in private memory, no waterfall loops."""

from __future__ import annotations

import re
from typing import Any

import pytest

from einkorn.graph.drawing.inspected import op_graph

X, HALF = "float32[4096, 1024]", "bfloat16[4096, 1024]"
WIDE: list[tuple[str, list[str], dict[str, Any]]] = [
    ("add", [X, X], {}),
    ("exp", [X], {}),
    ("exp", [X], {"fast": True}),
    ("gelu", [HALF], {}),
    ("softmax", [X], {"axis": -1}),
    ("softmax", [HALF], {"axis": -1}),
    ("layer_norm", [X, "float32[1024]", "float32[1024]"], {"epsilon": 1e-5}),
]
NARROW: list[tuple[str, list[str], dict[str, Any]]] = [
    ("sum", [X], {"axis": -1}),
    ("sum", [X], {"axis": 0}),
    ("argmax", [X], {"axis": -1}),
]


def waterfalls(asm: str) -> list[str]:
    """Loops that take the lanes of a wave one value at a time."""
    blocks = re.split(r"^(?=\.LBB\w+:)", asm, flags=re.MULTILINE)
    named = ((block.partition(":")[0], block) for block in blocks)
    return [
        name
        for name, block in named
        if "v_readfirstlane" in block and re.search(rf"s_cbranch_execnz {re.escape(name)}\b", block)
    ]


def test_waterfalls_are_found() -> None:
    loop = ".LBB0_1:\n\tv_readfirstlane_b32 s4, v0\n\ts_xor_b64 exec, exec, s[6:7]\n\ts_cbranch_execnz .LBB0_1\n"
    assert waterfalls(f"kernel:\n{loop}.LBB0_2:\n\ts_endpgm\n") == [".LBB0_1"]
    assert waterfalls(loop.replace("s_cbranch_execnz .LBB0_1", "s_cbranch_execnz .LBB0_12")) == []


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_built_in_ops(target: str) -> None:
    for name, inputs, parameters in (*WIDE, *NARROW):
        asm = op_graph(name, inputs, parameters, target).code("asm", target)
        assert "s_endpgm" in asm and not waterfalls(asm), name
        assert not re.search(r"\b(flat|scratch)_(load|store)", asm), name
        wide = [re.search(rf"global_{what}_(dwordx4|b128)\b", asm) for what in ("load", "store")]
        assert all(wide) or (name, inputs, parameters) in NARROW, name
