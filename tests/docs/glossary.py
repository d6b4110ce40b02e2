"""The words that this project does not use, each with the plain term: see "Words" in CONTRIBUTING.md.

`REFUSED` maps a pattern to what to write instead. `LEFT` counts what is left in each folder. A count may only fall:
`.venv/bin/python tests/docs/glossary.py` lowers the counts of folders that have improved.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = (".py", ".pyi", ".md", ".html")
SKIPPED = {"build", "dist", "shared", "glossary.py", "long_tests.py", "test_words.py"}

# Patterns of words in lower case. Things do not act like people, and a term of the field is not paraphrased.
REFUSED = {
    r"melt(s|ed|ing)?": "is fused",
    r"hears?|heard|hearing": "receives, handles",
    r"tells?|told|telling": "returns, reports, determines; metadata",
    r"nobody|somebody|anybody|whoever": "a subject that can be named: uninitialised, unordered, the caller",
    r"who|whom": "that, which, the caller",
    r"(?<!\")besides?": "next to, in addition to; a background thread",  # "beside" is the value of an option
    r"nowhere": "is discarded, has no address",
    r"can(not)? be had": "is (not) available, can(not) be allocated",
    r"asks?|asked|asking": "requests, calls, checks, requires",
    r"knows|knew": "has, supports, stores",
    r"meets?|met": "reaches, finds; operands of",
    r"their like|its like|the like": "the things themselves",
    r"is no (number|tensor|kernel|array|int|integer|name|multiple|buffer|device|graph|type|function)": "is not a",
    r"of (ours|its own accord)": "Einkorn's",
}

PATTERN = re.compile("|".join(rf"(?:\b(?:{pattern})\b)" for pattern in REFUSED), re.IGNORECASE)

LEFT: dict[str, int] = {
    "tests": 1,
}


def words_in(text: str) -> list[str]:
    """The refused words of a text; parts of identifiers count as words."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ")
    return [each[0] for each in PATTERN.finditer(spaced)]


def folder_of(path: Path) -> str:
    """What the words of a file are counted for: its folder, of at most two levels; "." for files of the root."""
    return "/".join(path.parent.parts[:2]) or "."


def counted() -> Counter[str]:
    """The refused words of each folder."""
    counts: Counter[str] = Counter()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not _is_skipped(name)]
        for name in names:
            file = Path(folder, name)
            if file.suffix in TEXTS and not _is_skipped(name):
                counts[folder_of(file.relative_to(ROOT))] += len(words_in(file.read_text(encoding="utf-8")))
    return +counts


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in SKIPPED


def lower(counts: Counter[str]) -> None:
    """Writes this file anew, with the smaller one of the old and the new count of each folder."""
    lowered = {folder: min(count, LEFT.get(folder, count)) for folder, count in sorted(counts.items())}
    rows = "".join(f'    "{folder}": {count},\n' for folder, count in lowered.items())
    file = Path(__file__)
    text = re.sub(
        r"(?s)LEFT: dict\[str, int\] = \{[^{}]*\}",
        f"LEFT: dict[str, int] = {{\n{rows}}}",
        file.read_text(encoding="utf-8"),
    )
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    lower(counted())
