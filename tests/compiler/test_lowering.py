"""The tables of emission: each opcode has a function, and each file of a family takes part."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from einkorn.compiler.ir.opcodes import IRREGULAR
from einkorn.compiler.ir.operations import ROWS
from einkorn.compiler.lowering import module
from einkorn.compiler.lowering.writer import EMITTERS, EXPANSIONS, emits, expands
from einkorn.dsl.diagnostics.errors import InternalError

ROOM = Path(module.__file__).parent


def test_every_opcode_has_an_emitter_and_every_named_expansion_a_function() -> None:
    assert set(EMITTERS) == {*ROWS, *IRREGULAR}
    named = {spelling[1:] for row in ROWS.values() for spelling in row.mlir.values() if spelling.startswith("=")}
    assert set(EXPANSIONS) == named


def test_every_file_that_registers_something_is_a_family_of_the_module() -> None:
    registers = re.compile(r"^@?(?:\w+ = )?(?:emits|expands)\(", re.MULTILINE)
    files = {file.stem for file in ROOM.glob("*.py") if registers.search(file.read_text())}
    assert files == {name for name, value in vars(module).items() if isinstance(value, ModuleType) and name in files}


def test_an_opcode_is_emitted_by_one_function_only() -> None:
    before = dict(EMITTERS), dict(EXPANSIONS)
    with pytest.raises(InternalError, match="two functions emit 'load'"):
        emits("load")(lambda w, op: None)
    with pytest.raises(InternalError, match="two functions expand 'clz'"):
        expands("clz")(lambda w, operands, type: "")
    assert before == (EMITTERS, EXPANSIONS)
