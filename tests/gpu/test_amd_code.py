"""Machine code of built-in ops for AMD's GPUs: 16 bytes an access, no private memory, no waterfalls, lanes by DPP."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.gpu_cases import CASES

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


MOVES = {"quad_perm:[1,0,3,2]", "quad_perm:[2,3,0,1]", "row_half_mirror", "row_ror:8"}  # lanes 1, 2, 4, 8 away
ROWS: list[tuple[str, list[str], dict[str, Any]]] = [
    *((name, [X], {"axis": -1}) for name in ("sum", "max", "mean", "argmax", "softmax", "logsoftmax")),
    ("sum", [HALF], {"axis": -1}),
    ("sum", ["float32[64, 9000]"], {"axis": -1}),
    ("layer_norm", [X, "float32[1024]", "float32[1024]"], {"epsilon": 1e-5}),
    ("rms_norm", [X, "float32[1024]"], {"eps": 1e-5}),
]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_rows_are_reduced_without_the_crossbar_of_shared_memory(target: str) -> None:
    """Lanes read registers within rows of 16 (DPP); rows join by v_readlane in wave64, by v_permlanex16 in wave32."""
    for name, inputs, parameters in ROWS:
        asm = op_graph(name, inputs, parameters, target).code("asm", target)
        assert not re.search(r"\bds_(bpermute|permute|swizzle)", asm), (name, inputs)
        found = re.findall(r"_dpp v\d+, .*?(row_\w+(?::\d+)?|quad_perm:\[[\d,]+\])", asm)
        assert {"quad_perm:[1,0,3,2]", "quad_perm:[2,3,0,1]", "row_half_mirror", "row_ror:8"} <= set(found), (
            name,
            found,
        )
        assert ("v_permlanex16" in asm) == target.startswith("gfx1"), name


def test_lanes_that_are_known_are_read_without_addresses() -> None:
    """A warp of 64 exchanges lanes of a row by one to three moves, one of 32 all lanes; a partial warp by addresses."""
    cases = {case.name: case for case in CASES}
    whole, wide = (cases["warps exchange int32 64"].compile(target).asm for target in ("gfx942", "gfx1100"))
    assert len(re.findall(r"ds_bpermute", whole)) == 16  # of the bits 16 to 31
    assert len(re.findall(r"v_readlane", whole)) == 2
    assert "ds_bpermute" not in wide and len(re.findall(r"v_permlanex16_b32", wide)) == 16
    partial = cases["warps exchange float32 48"].compile("gfx942").asm
    assert "_dpp" not in partial and len(re.findall(r"ds_bpermute", partial)) >= 31
