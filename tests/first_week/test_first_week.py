"""What a user of NumPy and PyTorch writes in a first week with Einkorn, as it is written at first.

Each program of the folder `programs` has kernels, and a function `main` that yields what they compute next to what
NumPy or PyTorch does. Most compile as they are written. The others are refused with hints; doing what the hints say,
and nothing else, makes them right.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.hints import follow

from einkorn.dsl.diagnostics.errors import EinkornError, each_of

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("*.py"))
BY_HINTS = {"blur", "equalise", "fft", "levenshtein"}  # refused at first
MAX_HINTS = 8  # hints that a program follows


def run(name: str, text: str) -> list[tuple[Any, Any]]:
    """What a program yields."""
    path = Path(f"{name}.py").resolve()
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"first_week_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.main())


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right_as_written_or_after_their_hints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "cross_entropy":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent / "programs" / f"{name}.py").read_text()
    followed: list[str] = []
    while True:
        try:
            results = run(name, text)
            break
        except EinkornError as error:
            first = each_of(error)[0]
            assert len(followed) < MAX_HINTS, followed
            better = follow(text, first)
            assert better is not None and better != text, f"{first}\n\nafter {followed}"
            followed.append(str(first.hint))
            text = better
    assert bool(followed) == (name in BY_HINTS), followed
    assert results
    for got, expected in results:
        got, expected = np.asarray(got), np.asarray(expected)
        assert got.shape == expected.shape
        if got.dtype.kind in "fc":
            assert np.allclose(got, expected, rtol=1e-5, atol=1e-5)
        else:
            assert np.array_equal(got, expected)


def test_most_programs_are_right_as_written() -> None:
    assert len(PROGRAMS) == 16 and set(PROGRAMS) >= BY_HINTS and len(BY_HINTS) <= 4
