"""A name of the language is declared in one place: what files, checkers and the compiler know is the same list."""

from __future__ import annotations

import builtins
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import einkorn.compiler.pipeline
from einkorn import dsl
from einkorn.compiler.inference import evaluator
from einkorn.compiler.inference.members import table
from einkorn.compiler.ir import operations
from einkorn.dsl import language
from einkorn.dsl.frontend.python.register import implementation
from einkorn.dsl.language import members
from einkorn.dsl.language.stubs import STUBS, Namespace

FAMILIES = {name: module for name, module in vars(language).items() if hasattr(module, "__all__")}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_exports_what_it_declares(family: str) -> None:
    module = FAMILIES[family]
    own = {name for name, value in vars(module).items() if STUBS.get(name) is value or isinstance(value, Namespace)}
    assert own <= set(module.__all__)
    assert sorted(set(module.__all__)) == sorted(module.__all__)


def test_every_family_is_in_the_language() -> None:
    files = {file.stem for file in Path(str(language.__file__)).parent.glob("*.py")}
    assert {"annotations", "arithmetic", "loops", "mathematics"} < set(FAMILIES) <= files
    exported = [name for module in FAMILIES.values() for name in module.__all__]
    assert sorted([*exported, "DType", "autotune", "implements", "kernels_of", "register"]) == sorted(dsl.__all__)
    assert len(set(dsl.__all__)) == len(dsl.__all__)
    assert not any(isinstance(getattr(dsl, name), ModuleType) for name in dsl.__all__)
    top = {name for name in STUBS if "." not in name and not hasattr(builtins, name)}
    assert top <= set(dsl.__all__)


def test_every_name_has_a_meaning() -> None:
    """A stub stands for a row of the table of operations, a rule, a value, or a function of the standard library."""
    known = {"row": operations.ROWS, "rule": evaluator.RULES, "value": evaluator.NAMED_VALUES}
    lacking = [name for name, stub in STUBS.items() if stub.kind in known and name not in known[stub.kind]]
    for name, stub in STUBS.items():
        if stub.kind not in known:
            try:
                implementation(name)
            except KeyError:
                lacking.append(name)
    assert lacking == []


def test_checkers_see_the_members_that_the_compiler_has() -> None:
    """Each member of a number, vector, tensor, pointer or target is declared for editors, and the other way round."""
    assert einkorn.compiler.pipeline
    known: dict[str, set[str]] = {}
    for owner, name in table.MEMBERS:
        known.setdefault(owner.__name__, set()).add(name)
    of_values = known["Value"] | known["KernelTensor"]

    def declared(cls: type) -> set[str]:
        return {n for n in (*vars(cls), *vars(cls).get("__annotations__", ())) if not n.startswith("_")}

    assert declared(members.Members) == of_values
    assert declared(members.Pointer) == known["PointerType"]
    assert declared(dsl.language.annotations.Target) == known["TargetValue"]


def test_checkers_see_the_arguments_that_the_compiler_takes() -> None:
    """Names, kinds and defaults of the arguments of each method."""

    def plain(signature: inspect.Signature, skip: int = 0) -> list[tuple[str, object, object]]:
        return [(p.name, p.kind, p.default) for p in list(signature.parameters.values())[skip:]]

    declared = {"Value": members.Members, "KernelTensor": members.Members, "PointerType": members.Pointer}
    compared = 0
    for (owner, name), member in table.MEMBERS.items():
        signature = inspect.getclosurevars(member).nonlocals.get("signature")
        if signature is not None and owner.__name__ in declared:
            ours = inspect.signature(getattr(declared[owner.__name__], name))
            assert plain(ours, 1) == plain(signature), (owner, name)
            compared += 1
    assert compared > 40
