"""Every code that the package raises has a meaning, and every meaning is raised."""

from __future__ import annotations

import re
from pathlib import Path

import einkorn
from einkorn.dsl.codes import MEANINGS

ROOT = Path(einkorn.__file__).resolve().parent
FLOORS = ("dsl", "compiler", "graph", "stdlib")


def raised() -> set[str]:
    files = [*ROOT.glob("*.py"), *(f for floor in FLOORS for f in (ROOT / floor).rglob("*.py"))]
    texts = [f.read_text(encoding="utf-8") for f in files if f.name != "codes.py"]
    return {code for text in texts for code in re.findall(r"\"(EK\d{4})\"", text)}


def test_codes_and_meanings() -> None:
    assert sorted(raised() - MEANINGS.keys()) == [], "these codes have no meaning in dsl/codes.py"
    assert sorted(MEANINGS.keys() - raised()) == [], "these codes of dsl/codes.py are raised nowhere"


def test_meanings_are_sentences() -> None:
    for code, meaning in MEANINGS.items():
        assert meaning[0].isupper() or meaning.startswith(("@", "stack", "ctx", "out_types")), code
        assert meaning.endswith(".") and meaning.count(".") <= 4, code
    assert len(set(MEANINGS.values())) == len(MEANINGS)
    assert list(MEANINGS) == sorted(MEANINGS)
