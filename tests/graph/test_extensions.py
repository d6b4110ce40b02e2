"""Libraries of kernels that graphs share and sessions bring, and the threads of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import HOST

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.graph import DType, Graph, InferenceSession, KernelLibrary, TensorType, ops

HEAD = "from typing import TypeVar\nfrom einkorn.dsl import *\n\nT = TypeVar('T', bound=Numeric)\n"
SCALE = """
@register("{name}")
def {name}(out: OutputTensor[T, "n"], {x}: InputTensor[T, "n"], *, factor: int = {factor}):
    foreach(out, lambda i: {x}[i] * factor)
"""
LATE = """
@register("head")
def head(out: OutputTensor[T, "m"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] {change})


@head.shape
def head_shape(x: InputTensor[T, "n"]) -> int:
    return min(x.size, {count})
"""
N = TensorType(DType.float32, ["n"], HOST)
X = np.arange(5, dtype=np.float32)


def library(path: Path, name: str = "scale", factor: int = 2, x: str = "x") -> Path:
    path.write_text(HEAD + SCALE.format(name=name, factor=factor, x=x))
    return path


def graph(**options: Any) -> Graph:
    return Graph("g", lambda x: ops.custom("scale", HOST, [x]), [N], **options)


def test_a_library_serves_several_graphs(tmp_path: Path) -> None:
    shared = KernelLibrary([library(tmp_path / "a.py")])
    shared.load_paths([library(tmp_path / "b.py", "other"), tmp_path / "a.py"])
    shared.add_path(tmp_path / "b.py")
    assert shared.library_paths() == [tmp_path / "a.py", tmp_path / "b.py"]
    first, second = graph(kernel_library=shared), graph(kernel_library=shared)
    assert first.kernel_libraries_paths == shared.library_paths() and str(first) == str(second)
    shared.verify_custom_op("other")
    with pytest.raises(PackageError) as caught:
        shared.verify_custom_op("othr")
    assert caught.value.code == "EK0440" and "other" in str(caught.value.hint)
    with pytest.raises(PackageError) as caught:
        shared.add_path(library(tmp_path / "c.py", factor=3))
    assert caught.value.code == "EK0443" and len(shared.library_paths()) == 2


@pytest.mark.parametrize("where", ["session", "load"])
def test_a_session_brings_other_kernels_of_the_same_signature(tmp_path: Path, where: str) -> None:
    staged = graph(custom_extensions=[library(tmp_path / "a.py")])
    other = tmp_path / "other.py"
    other.write_text(HEAD + SCALE.format(name="scale", factor=2, x="x").replace("* factor", "- factor"))
    session = InferenceSession(interpret=True, custom_extensions=other if where == "session" else None)
    model = session.load(staged, custom_extensions=[str(other)] if where == "load" else None)
    np.testing.assert_array_equal(model(X)[0].to_numpy(), X - 2)
    np.testing.assert_array_equal(InferenceSession(interpret=True).load(staged)(X)[0].to_numpy(), X * 2)


def test_shape_functions_come_along(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text(HEAD + LATE.format(change="", count=3))
    second.write_text(HEAD + LATE.format(change="* 10", count=2))
    staged = Graph("g", lambda x: ops.custom("head", HOST, [x]), [N], custom_extensions=[first])
    model = InferenceSession(interpret=True, custom_extensions=[second]).load(staged)
    np.testing.assert_array_equal(model(X)[0].to_numpy(), [0, 10])


def test_another_signature_is_refused(tmp_path: Path) -> None:
    staged = graph(custom_extensions=[library(tmp_path / "a.py")])
    session = InferenceSession(custom_extensions=[library(tmp_path / "b.py", x="y")])
    with pytest.raises(PackageError) as caught:
        session.load(staged)
    assert caught.value.code == "EK0439" and caught.value.place is not None and caught.value.place.file == __file__
    with pytest.raises(PackageError):
        InferenceSession(custom_extensions=[tmp_path / "none"])


def test_num_threads() -> None:
    """What takes part is said by the code itself: a parallel region of many chunks."""
    big = np.ones(1 << 20, np.float32)
    staged = Graph("g", lambda x: x + 1, [N])
    for threads in (1, 2, 3):
        model = InferenceSession(num_threads=threads).load(staged)
        assert model.first_caller.native.context.threads == threads
        assert bool(model.first_caller.native.context.parallel) == (threads > 1)
        np.testing.assert_array_equal(model(big)[0].to_numpy(), big + 1)
        assert model.clone().first_caller.native.context.threads == threads
    pools = {id(InferenceSession(num_threads=2).load(staged).first_caller.native.pool) for _ in range(2)}
    assert len(pools) == 1, "models of one number of threads share a pool"
