"""The environment variables: typed values, and errors that name what is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from einkorn.dsl.environment import knobs as module
from einkorn.dsl.environment.knobs import KnobError, all_knobs, check_environment, knobs


@pytest.fixture(autouse=True)
def no_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("EINKORN_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(module, "_checked", False)


def test_defaults() -> None:
    assert (knobs.cache, knobs.no_jit, knobs.log, knobs.stop) == (True, False, "warning", None)
    assert (knobs.cache_dir, knobs.num_threads, knobs.dump) == (None, None, frozenset())


def test_values_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CACHE", "off")
    monkeypatch.setenv("EINKORN_CACHE_DIR", "~/somewhere")
    monkeypatch.setenv("EINKORN_NUM_THREADS", "3")
    monkeypatch.setenv("EINKORN_DUMP", "mlir, asm")
    monkeypatch.setenv("EINKORN_STOP", "LLVM")
    assert knobs.cache is False
    assert knobs.cache_dir == Path.home() / "somewhere"
    assert knobs.num_threads == 3
    assert knobs.dump == {"mlir", "asm"}
    assert knobs.stop == "llvm"
    monkeypatch.setenv("EINKORN_NUM_THREADS", "4")
    assert knobs.num_threads == 4
    monkeypatch.setenv("EINKORN_NUM_THREADS", "")
    assert knobs.num_threads is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("EINKORN_NUM_THREADS", "many", "which is not a whole number from 1"),
        ("EINKORN_NUM_THREADS", "0", "which is not a whole number from 1"),
        ("EINKORN_OPTIMIZE", "4", "which is not 0, 1, 2 or 3"),
        ("EINKORN_CACHE", "perhaps", "which is not a switch (1 or 0, on or off)"),
        ("EINKORN_LOG", "loud", "which is not one of debug, info, warning or error"),
    ],
)
def test_text_that_does_not_fit(monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(KnobError) as caught:
        getattr(knobs, name.removeprefix("EINKORN_").lower())
    assert str(caught.value) == f"error[EK0692]: the environment variable {name} is {text!r}, {message}"


def test_unknown_variable_is_found_at_the_first_use_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_CACHE_DRI", "/somewhere")
    for _ in range(2):  # and it stays an error until it is mended
        with pytest.raises(KnobError) as caught:
            _ = knobs.log
    assert str(caught.value) == (
        "error[EK0691]: the environment variable EINKORN_CACHE_DRI is unknown to Einkorn\n"
        f"note: known are {', '.join(knob.name for knob in all_knobs())}\n"
        "hint: did you mean EINKORN_CACHE_DIR or EINKORN_CACHE?"
    )
    monkeypatch.delenv("EINKORN_CACHE_DRI")
    assert knobs.log == "warning"


def test_variables_of_other_programs_are_ignored() -> None:
    check_environment(["PATH", "XEINKORN_A", "EINKORN_CACHE"])


def test_the_table_is_whole() -> None:
    for knob in all_knobs():
        assert knob.name == "EINKORN_" + next(n for n, k in vars(module.Knobs).items() if k is knob).upper()
        assert knob.doc.endswith(".") and knob.kind
        assert knob.read("") == knob.default
