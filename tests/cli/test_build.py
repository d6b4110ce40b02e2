"""`einkorn build` of ops that nothing says the parameters of: refused, and mended by what the message says."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.cli.application import run as einkorn
from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.container import read_package
from einkorn.graph import DeviceRef, ops

PLAIN = """
@register("plain")
def plain(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] + 1.0)
"""
TIMES = """
@register("mine::times")
def times(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, k: int, by: float = 1.0, odd: bool = False):
    foreach(out, lambda i: x[i] * T(k) / T(by) + (T(1) if odd else T(0)))
"""
HEAD = "from typing import TypeVar\nfrom einkorn.dsl import *\nT = TypeVar('T', bound=Floating)\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = einkorn(list(arguments))
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return call


def compiled(path: str = "k.pkg") -> dict[str, list[str]]:
    package = read_package(path)
    names = [op.schema.name for op in package.ops]
    return {name: [str(v.instance) for v in package.variants if v.op == name] for name in names}


def test_nothing_to_compile_is_an_error_and_its_hint_works(run: Run) -> None:
    Path("k.py").write_text(HEAD + TIMES)
    status, out, err = run("build", "k.py", "-o", "k.pkg", "--target", "host")
    assert (status, out) == (1, "") and not Path("k.pkg").exists()
    assert "error[EK0519]: nothing was compiled" in err
    assert "op 'mine::times' was not compiled: nothing says k: int; add --param k=8" in err
    assert "hint: add --param k=8, or list instances with --instances FILE" in err
    status, out, err = run("build", "k.py", "-o", "k.pkg", "--target", "host", "--param", "k=8", "--rank", "s=2")
    assert (status, err) == (0, "") and compiled() == {"mine::times": ["T=float32 s=2 by=1.0 k=8 odd=False"]}
    status, _, err = run("build", "k.py", "-o", "bare.pkg")  # programs alone are what was requested
    assert (status, err) == (0, "") and compiled("bare.pkg") == {"mine::times": []}


def test_what_was_not_compiled_is_reported(run: Run) -> None:
    Path("k.py").write_text(HEAD + PLAIN + TIMES)
    status, _, err = run("build", "k.py", "-o", "k.pkg", "--target", "host")
    assert status == 0
    assert err == "note: op 'mine::times' was not compiled: nothing says k: int; add --param k=8\n"
    status, _, err = run("build", "k.py", "-o", "k.pkg", "--target", "host", *shlex.split(err.rpartition("add ")[2]))
    assert (status, err) == (0, "") and len(compiled()["mine::times"]) == 4 and len(compiled()["plain"]) == 1
    Path("i.json").write_text('{"plain": [{}]}')
    status, _, err = run("build", "k.py", "-o", "k.pkg", "--target", "host", "--instances", "i.json")
    assert status == 0 and "op 'mine::times' was not compiled: nothing says k: int" in err
    Path("i.json").write_text('{"plain": []}')
    status, _, err = run("build", "k.py", "-o", "none.pkg", "--target", "host", "--instances", "i.json")
    assert status == 1 and "EK0519" in err and not Path("none.pkg").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--param", "j=8"), "no op here has a parameter 'j'"),
        (("--param", "k=x"), "parameter 'k' is not of type int: 'x'"),
        (("--dtype", "U=int8"), "no op here has a type variable 'U'"),
        (("--rank", "z=2"), "no op here has a pack 'z'"),
        (("--count", "xs=2"), "no op here has a variadic argument 'xs'"),
        (("--op", "twice"), "has no op 'twice'"),
    ],
)
def test_options_that_name_nothing(run: Run, option: tuple[str, str], message: str) -> None:
    Path("k.py").write_text(HEAD + PLAIN + TIMES)
    status, _, err = run("build", "k.py", "-o", "k.pkg", "--target", "host", *option)
    assert status == 1 and message in err and not Path("k.pkg").exists()


@pytest.mark.parametrize(
    ("dtype", "rank", "parameters"),
    [
        (np.float32, 1, {"k": 3}),
        (np.float64, 2, {"k": -5, "by": -0.0, "odd": True}),
        (np.float16, 3, {"k": 2, "by": float("inf")}),
    ],
)
def test_the_hint_of_a_load_without_code_works(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any, rank: int, parameters: dict[str, Any]
) -> None:
    """From the package alone: it has the program."""
    Path("k.py").write_text(HEAD + PLAIN + TIMES)
    assert run("build", "k.py", "-o", "k.pkg", "--target", "host")[0] == 0
    Path("k.py").unlink()

    def load(package: str) -> Any:
        device = DeviceRef.CPU()
        return graphs.load(
            lambda x: ops.custom("mine::times", device=device, values=[x], parameters=parameters),
            (dtype, ["a", "b", "c"][:rank]),
            extensions=[package],
        )

    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    with graphs.cache_in(tmp_path / "cache"):
        with pytest.raises(PackageError) as caught:
            load("k.pkg")
        assert caught.value.code == "EK0512" and caught.value.hint is not None
        command = shlex.split(caught.value.hint.partition("load that one: ")[2])
        assert command[0] == "einkorn" and run(*command[1:])[0] == 0
        model = load("k-more.pkg")
        assert "k-more.pkg" in model.code.tier
        x = np.ones((2, 3, 4)[:rank], dtype)
        with np.errstate(divide="ignore"):
            expected = x * dtype(parameters["k"]) / dtype(parameters.get("by", 1.0)) + dtype(
                parameters.get("odd", False)
            )
        assert (model(x)[0].to_numpy() == expected).all()
