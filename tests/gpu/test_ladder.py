"""The machine code of the kernels of docs/matmul-ladder.md, and what `einkorn explore` says of its lines."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from support.ladder import HAS_TOOLS, PAGE, RUNGS, compiled

from einkorn.compiler.explorer.machine_reports import instructions, machine_reports
from einkorn.compiler.targets.machine_code import disassemble, live_registers
from einkorn.compiler.targets.nvptx import assemble

ROW = re.compile(r"^\| (\w+) \| \d+ \| (\d+) \| (\d+) \|", re.MULTILINE)


@pytest.mark.as_shipped
@pytest.mark.skipif(not HAS_TOOLS, reason="machine code is shown by ptxas and nvdisasm")
@pytest.mark.parametrize("rung", ["coalesced", "squares", "cores"])
def test_products_are_those_of_the_table(tmp_path: Path, rung: str) -> None:
    table = {name: (int(ffma), int(hmma)) for name, ffma, hmma in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert list(table) == list(RUNGS)
    artifact = compiled(tmp_path, rung)
    cubin = assemble(artifact.asm, artifact.target)
    code = list(instructions(disassemble(cubin, artifact.target)))
    counts = Counter(each.name.split(".")[0] for each in code)
    assert (counts["FFMA"], counts["HMMA"]) == table[rung]
    assert not counts["LDL"] and not counts["STL"], "a value lies in memory for want of registers"
    live = live_registers(cubin, artifact.target)
    assert {each.place for each in code} & live.keys() and 16 < max(live.values()) < 255


@pytest.mark.as_shipped
@pytest.mark.skipif(not HAS_TOOLS, reason="machine code is shown by ptxas and nvdisasm")
def test_lines_have_their_instructions(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "coalesced")
    reports = {line: text for (_, line), text in machine_reports(artifact).items()}
    lines = RUNGS["coalesced"].split("\n")
    (sums,) = (number for number, line in enumerate(lines, 1) if "fma(" in line)
    assert re.fullmatch(r"\d+ instructions \(\d+ LDG 32\), up to \d+ registers live", reports[sums])
    assert "STG 32" in reports[sums + 1]


def test_other_targets_have_no_such_reports(tmp_path: Path) -> None:
    assert machine_reports(compiled(tmp_path, "coalesced", "gfx942")) == {}
