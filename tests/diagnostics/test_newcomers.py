"""The mistakes of a first day: each has a hint, and a hint that is followed works."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.hints import follow, with_own_imports

from einkorn import dsl, stdlib
from einkorn.cli.application import run
from einkorn.compiler.check import check_kernels
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.dsl.language import foreign_names
from einkorn.dsl.language.stubs import STUBS
from einkorn.graph import Buffer, DeviceRef, DType, Graph, InferenceSession, TensorType, ops

_spec = importlib.util.spec_from_file_location("newcomers", Path(__file__).with_name("newcomers.py"))
assert _spec is not None and _spec.loader is not None
newcomers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(newcomers)


def errors_of(text: str) -> tuple[EinkornError, ...]:
    Path("kernels.py").write_text(text)
    return check_kernels("kernels.py").errors


@cache
def wrong(text: str) -> tuple[EinkornError, ...]:
    return errors_of(text)


@pytest.mark.parametrize("mistake", newcomers.MISTAKES, ids=lambda mistake: mistake.name)
def test_a_hint_that_is_followed_works(mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    if newcomers.SPECIAL in mistake.wrong:
        pytest.importorskip("scipy")
    wrong_text = with_own_imports(mistake.wrong)
    errors = wrong(wrong_text)
    assert errors, "nothing is wrong with it"
    assert errors[0].hint is not None, errors[0]
    if mistake.said == newcomers.FOLLOW:
        text = follow(wrong_text, errors[0])
        assert text is not None, errors[0]
        assert not errors_of(text), f"{errors[0]}\n\nwhat follows from it:\n{text}\n\n{errors_of(text)[0]}"
        return
    assert mistake.said in errors[0].hint, errors[0]
    right = with_own_imports(mistake.right)
    assert not errors_of(right), errors_of(right)[0]


def test_there_are_many_and_each_once() -> None:
    names = [mistake.name for mistake in newcomers.MISTAKES]
    assert len(names) >= 150 and len(set(names)) == len(names)


def test_a_cast_is_right_for_every_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints are reported for one dtype of a type variable, and hold for all."""
    monkeypatch.chdir(tmp_path)
    for mistake in newcomers.MISTAKES:
        for error in (error for error in wrong(with_own_imports(mistake.wrong)) if error.code != "EK0113"):
            for name in re.findall(r"\.cast\((\w+)\)", error.hint or ""):
                assert not name.startswith("float") or re.search(rf"\b{name}\b", mistake.wrong, re.IGNORECASE), error


def test_foreign_names_lead_to_what_is_there() -> None:
    assert set(foreign_names.LIBRARY) == set(stdlib.__all__)
    for name in foreign_names.RENAMED.values():
        owner = name.partition(".")[0]
        assert hasattr(dsl, owner), name
    assert not set(foreign_names.RENAMED) & set(STUBS)


def test_a_hint_that_fails_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = newcomers.element("x[i] * i[0]")
    error = errors_of(text)[0]
    error.hint = "write (i[0]).cast(int32)"
    followed = follow(text, error)
    assert followed is not None and "x[i] * (i[0]).cast(int32)" in followed
    assert errors_of(followed)


UNTOLD = newcomers.declared('out: OutputTensor[T, "k"], x: InputTensor[T, "n"]', "out[0] = x[0]")
OPEN_PACK = newcomers.declared('out: OutputTensor[T, "*s"], x: InputTensor[T, "n"]', "foreach(out, lambda i: x[0])")
REPORTED = (
    newcomers.element("x[i]"),
    newcomers.declared('out: OutputTensor[T, "k"], x: InputTensor[T, "n"], *, k: int', "out[0] = x[0]"),
    UNTOLD + "\n\n@op.shape\ndef op_shape(x):\n    return x.dim(0)\n",
)


@pytest.mark.parametrize("text", [UNTOLD, OPEN_PACK], ids=["axis", "pack"])
def test_an_output_dim_that_nothing_determines_is_reported(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text(text)
    assert run(["check", "kernels.py"]) == 0
    shown = capsys.readouterr().out
    assert "kernels.py:8:8: warning[EK0314]: op 'op': nothing determines the size" in shown and "out_types=" in shown
    assert run(["check", "--format", "json", "kernels.py"]) == 0
    assert '"severity": "warning"' in capsys.readouterr().out
    if text == UNTOLD:
        assert run(["build", "kernels.py", "-o", "kernels.pkg"]) == 0
        assert "warning[EK0314]" in capsys.readouterr().err


@pytest.mark.parametrize("text", REPORTED, ids=["input", "parameter", "shape"])
def test_an_output_dim_that_something_determines_is_not(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text(text)
    assert check_kernels("kernels.py").remarks == ()


def test_a_missing_parameter_is_given_as_the_hint_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    signature = f"{newcomers.LINE}, *, k: int, f: float, b: bool, d: DType, s: str"
    Path("kernels.py").write_text(newcomers.element("x[i] * k * f if b else x[i].cast(d).cast(T)", signature))
    assert run(["inspect", "kernels.py"]) == 1
    options = re.search(r"hint: .* on the command line (.*)", capsys.readouterr().err)
    assert options is not None and run(["inspect", "kernels.py", *options[1].split()]) == 0


class Tensor:
    """What `torch.Tensor` is to a call."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def to(self, dtype: str) -> Tensor:
        return Tensor(self.array.astype(dtype))


Tensor.__module__ = "torch"


@pytest.mark.parametrize("dtype", [DType.float32, DType.int32, DType.bool], ids=str)
@pytest.mark.parametrize("make", [np.asarray, Buffer.from_numpy, Tensor, list], ids=["numpy", "own", "torch", "list"])
def test_an_input_of_another_dtype_is_converted_as_the_hint_says(make: Callable[..., Any], dtype: DType) -> None:
    type = TensorType(dtype, ["n"], DeviceRef.CPU())
    graph = Graph("same", forward=lambda x: ops.reshape(x, ["n"]), input_types=[type])
    model = InferenceSession().load(graph)
    x = make(np.array([0.0, 1.0, 3.0]))
    with pytest.raises(EinkornError) as caught:
        model(x)
    assert caught.value.code == "EK0452" and caught.value.hint is not None
    torch = SimpleNamespace(float32="float32", int32="int32", bool="bool")
    written = caught.value.hint.partition(": ")[2]
    given = eval(written, {"x": x, "np": np, "Buffer": Buffer, "torch": torch})
    assert model(given)[0].to_numpy().tolist() == np.array([0, 1, 3]).astype(dtype.to_numpy()).tolist()
