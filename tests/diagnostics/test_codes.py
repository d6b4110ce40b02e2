"""Every code that the package raises has a meaning, every meaning is raised, and docs/errors.md has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import einkorn
from einkorn.dsl.diagnostics.codes import MEANINGS

ROOT = Path(einkorn.__file__).resolve().parent
FLOORS = ("dsl", "compiler", "graph", "stdlib", "cli", "testing")


def raised() -> set[str]:
    files = [*ROOT.glob("*.py"), *(f for floor in FLOORS for f in (ROOT / floor).rglob("*.py"))]
    texts = [f.read_text(encoding="utf-8") for f in files if f.name != "codes.py"]
    return {code for text in texts for code in re.findall(r"\"(EK\d{4})\"", text)}


def test_codes_and_meanings() -> None:
    assert sorted(raised() - MEANINGS.keys()) == [], "these codes have no meaning in dsl/diagnostics/codes.py"
    assert sorted(MEANINGS.keys() - raised()) == [], "these codes of dsl/diagnostics/codes.py are never raised"


def test_meanings_are_sentences() -> None:
    for code, meaning in MEANINGS.items():
        assert meaning[0].isupper() or meaning.startswith(("@", "stack", "ctx", "out_types")), code
        assert meaning.endswith(".") and meaning.count(".") <= 4, code
    assert len(set(MEANINGS.values())) == len(MEANINGS)
    assert list(MEANINGS) == sorted(MEANINGS)


# The headings of docs/errors.md, and the beginnings of the codes below each.
HEADINGS: dict[str, tuple[str, ...]] = {
    "Syntax and names": ("EK01",),
    "Types": ("EK02",),
    "Signatures and dims": ("EK03",),
    "Graphs": ("EK04",),
    "Packages and libraries": ("EK050", "EK051"),  # the others are in docs/package.md, with what to do
    "Models of ONNX": tuple(f"EK05{number}" for number in range(25, 36)),
    "Targets and the toolchain": ("EK06",),
    "Running, devices, faults": ("EK0520", "EK07", "EK08", "EK09"),
}


def table(heading: str) -> str:
    """The codes below a heading with their meanings, in Markdown."""
    rows = [f"| {code} | {text} |" for code, text in MEANINGS.items() if code.startswith(HEADINGS[heading])]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def test_the_page_of_error_codes(request: pytest.FixtureRequest) -> None:
    """Its tables are those of the codes; `pytest tests/diagnostics --update-golden` writes them anew."""
    page = ROOT / "docs" / "errors.md"
    text = page.read_text(encoding="utf-8")
    made = text
    for heading in HEADINGS:
        below = re.compile(rf"(## {heading}\n\n(?:[^|#\n][^\n]*\n+)*)(\| code .*?\n)(?=\n*## |\Z)", re.DOTALL)
        assert below.search(made), f"docs/errors.md has no table under '{heading}'"
        made = below.sub(lambda found, heading=heading: f"{found[1]}{table(heading)}\n", made)  # type: ignore[misc]
    assert set(re.findall(r"^## (.*)$", made, re.MULTILINE)) == HEADINGS.keys()
    if request.config.getoption("--update-golden", default=False):
        page.write_text(made, encoding="utf-8")
        text = made
    assert text == made
