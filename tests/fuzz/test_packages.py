"""Three hundred hostile packages, and the campaign itself: what it makes differs, and what it should find is found."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import packages

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its code is for x86-64")


def test_two_hundred_mutants(tmp_path: Path) -> None:
    outcomes, finds = packages.campaign(200, 2026, tmp_path)
    assert not finds, "\n".join(finds)
    for kind, counts in outcomes.items():
        refused = sum(number for what, number in counts.items() if what.startswith("refused EK"))
        assert refused > 20 and counts["same"] > 0 and sum(counts.values()) == 50, (kind, counts)


def test_mutants_are_repeatable_and_differ(tmp_path: Path) -> None:
    made = packages.Mutants(tmp_path)
    for kind in packages.KINDS:
        data = [made.make(kind, number, 7)[2] for number in range(40)]
        assert data == [made.make(kind, number, 7)[2] for number in range(40)]
        assert len(set(data)) > 25 and made.data not in data[:1]


def test_packing_mends_all_that_is_checked(tmp_path: Path) -> None:
    made = packages.Mutants(tmp_path)
    assert packages.packed(made.members) == made.data
    name = "program/sums.json"
    program = json.loads(dict(made.members)[name])
    changed = packages.with_member(made.members, name, json.dumps(program).encode())
    (tmp_path / "changed.pkg").write_bytes(packages.packed(changed))
    from einkorn.dsl.package.container import read_package

    assert read_package(tmp_path / "changed.pkg").program("sums") == program


def test_a_child_that_dies_hangs_or_raises_is_a_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import json, os, sys, time\n"
        "for line in sys.stdin:\n"
        "    path, op, shape = json.loads(line)\n"
        "    if op == 'sums': os._exit(7)\n"
        "    if op == 'kept': time.sleep(60)\n"
        "    print(json.dumps(['raw', 'load', 'KeyError: 1', 'x.py:1']), flush=True)\n"
    )
    (tmp_path / "child.py").write_text(script)
    monkeypatch.setattr(packages, "__file__", str(tmp_path / "child.py"))
    monkeypatch.setattr(packages, "PATIENCE", 1.0)
    child = packages.Child(tmp_path)
    assert child.check(tmp_path, "mixed")[0] == "raw"
    assert child.check(tmp_path, "sums") == ["death", 7, "load"]
    child.start()
    child.served = 1
    assert child.check(tmp_path, "kept") == ["hang"]
    child.stop()
    assert "raw" not in packages.FINE and "death" not in packages.FINE and "hang" not in packages.FINE
