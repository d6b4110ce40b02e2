"""`einkorn.load`: ops of packages, folders and files as attributes that are called from NumPy and other libraries."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import Tensor

import einkorn
from einkorn import errors
from einkorn.compiler.build import build_package
from einkorn.graph import Buffer, DType, Graph, InferenceSession, TensorType, ops
from einkorn.testing import check_op

KERNELS = """
from typing import TypeVar
from einkorn.dsl import *

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)


@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    \"\"\"Adds one.\"\"\"
    foreach(out, lambda i: x[i] + STEP)


@register("mine::scaled")
def scaled(out: OutputTensor[F, "n"], x: InputTensor[F, "n"], *, by: float = 2.0):
    foreach(out, lambda i: x[i] * by)


@register("mine::add")
def add(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + y[i])


@register("other::add")
def add_twice(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + 2 * y[i])


@register("deep::er::square")
def square(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]):
    foreach(out, lambda i: x[i] * x[i])


@register("deep::square_backward")
def square_backward(grad_x: OutputTensor[F, "*s"], grad_out: InputTensor[F, "*s"], x: InputTensor[F, "*s"]):
    foreach(grad_x, lambda i: 2 * grad_out[i] * x[i])


square.backward(square_backward)


@register("follow")
def follow(mean: MutableInputTensor[float32, "n"], x: InputTensor[float32, "n"], rate: float32):
    foreach(mean, lambda i: mean[i] + (x[i] - mean[i]) * rate)


@register("positive")
def positive(out: OutputTensor[int32, "k"], x: InputTensor[int32, "n"]):
    count = Int(0)
    for j in range(x.dim(0)):
        if x[j] > 0:
            out[count] = x[j]
            count += 1


@positive.shape
def _(x: InputTensor[int32, "n"]) -> Int:
    count = Int(0)
    for j in range(x.dim(0)):
        if x[j] > 0:
            count += 1
    return count


@register("halves")
def halves(low: OutputTensor[T, "(n//2)"], high: OutputTensor[T, "(n - n//2)"], x: InputTensor[T, "n"]):
    foreach(low, lambda i: x[i])
    foreach(high, lambda i: x[x.dim(0) // 2 + i[0]])
"""
NAMES = ["add_one", "deep::er::square", "deep::square_backward", "follow", "halves", "mine::add", "mine::scaled"]
NAMES += ["other::add", "positive"]


def write(folder: Path, step: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ops.py").write_text(KERNELS.replace("STEP", str(step)))
    return folder


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("libraries")
    kernels = write(folder / "kernels", 1)
    build_package(str(kernels), str(folder / "ops.pkg"), [])
    return {"folder": kernels, "file": kernels / "ops.py", "package": folder / "ops.pkg"}


@pytest.fixture(scope="module", params=["folder", "file", "package"])
def lib(request: pytest.FixtureRequest, paths: dict[str, Path]) -> Any:
    return einkorn.load(paths[request.param])


x = np.arange(4.0)


def test_ops_are_called_like_functions(lib: Any) -> None:
    assert np.array_equal(lib.add_one(x), x + 1)
    assert np.array_equal(lib.mine.scaled(x, by=3.0), x * 3)
    assert lib.mine.add(x[:, None], x[:2]).shape == (4, 2)
    assert np.array_equal(lib.other.add(x, 1), x + 2)
    assert np.array_equal(lib.add_one.ufunc(x[::2]), x[::2] + 1)
    y = np.empty(4)
    assert lib.add_one(x, out=y) is y and y[3] == 4
    mean = np.zeros(2, np.float32)
    assert lib.follow(mean, np.ones(2, np.float32), 0.5) is None and mean[1] == 0.5
    assert lib.positive(np.array([0, 3, -1, 2], np.int32)).tolist() == [3, 2]
    low, high = lib.halves(x.astype(np.int16))
    assert low.tolist() == [0, 1] and high.tolist() == [2, 3]
    assert isinstance(lib.add_one(Buffer.from_numpy(x)), Buffer)
    assert isinstance(lib.add_one(Tensor.ones((2,))), Tensor)
    assert lib.add_one.compile(x)(x).tolist() == [1, 2, 3, 4]
    assert "func add_one" in lib.add_one.inspect(x)


def test_names(lib: Any) -> None:
    assert list(lib) == NAMES and len(lib) == len(NAMES)
    assert lib.scaled is lib.mine.scaled is lib["mine::scaled"] is lib["scaled"] is lib.mine["scaled"]
    assert lib.square is lib.deep.er.square is lib.deep.square is lib["deep::er::square"]
    own = {"add_one", "deep", "follow", "halves", "mine", "other", "positive"}
    assert dir(lib) == sorted(own | {"scaled", "square", "square_backward"})
    assert "scaled" in lib and "mine::scaled" in lib and "add" not in lib and "nope" not in lib
    assert list(lib.mine) == ["mine::add", "mine::scaled"] and dir(lib.mine) == ["add", "scaled"]
    assert "mine::scaled" in repr(lib) and "namespace mine of" in repr(lib.mine)
    assert lib._ipython_key_completions_() == NAMES
    assert str(inspect.signature(lib.scaled)).startswith('(x: F["n"], /, *, by: float = 2.0')
    assert "Adds one." in lib.add_one.__doc__


@pytest.mark.parametrize(
    ("question", "kind", "message", "hint"),
    [
        (lambda lib: lib.scald, AttributeError, "has no op 'scald'", "did you mean 'scaled'?"),
        (lambda lib: lib["mine::scald"], KeyError, "has no op 'mine::scald'", "did you mean 'mine::scaled'"),
        (lambda lib: lib.mine.scald, AttributeError, "has no op 'scald' in namespace 'mine'", "did you mean 'scaled'?"),
        (lambda lib: lib.add, AttributeError, "several ops 'add': mine::add and other::add", 'library["mine::add"]'),
        (lambda lib: lib[3], KeyError, "has no op '3'", None),
    ],
)
def test_missing_ops(
    lib: Any, question: Callable[[Any], Any], kind: type[Exception], message: str, hint: str | None
) -> None:
    with pytest.raises(kind) as caught:
        question(lib)
    error = caught.value
    assert isinstance(error, errors.PackageError) and error.code == "EK0505"
    assert message in error.message and (error.hint is None if hint is None else hint in str(error.hint))
    assert message in str(error)
    assert error.place is not None and error.place.file == __file__


def test_what_tools_look_for_is_missing_quietly(lib: Any) -> None:
    assert not hasattr(lib, "nope") and not hasattr(lib, "__array__")
    with pytest.raises(AttributeError):
        lib.add_one = 1
    assert copy.copy(lib) is lib and copy.deepcopy(lib) is lib


def test_in_graphs(lib: Any) -> None:
    type_ = TensorType(DType.float64, ["n"])
    graph = Graph("called", lambda v: lib.scaled(lib.add_one(v)), [type_])
    assert InferenceSession().load(graph)(x)[0].to_numpy().tolist() == [2, 4, 6, 8]
    for extension, name in ((lib, "add_one"), ([lib], "mine::scaled"), (lib.mine, "scaled")):
        graph = Graph(
            "named", lambda v, n=name: ops.custom(n, v.device, [v], [v.type])[0], [type_], custom_extensions=extension
        )
        expected = x + 1 if name == "add_one" else x * 2
        assert np.array_equal(InferenceSession().load(graph)(x)[0].to_numpy(), expected)


def test_pickled(lib: Any) -> None:
    again = pickle.loads(pickle.dumps(lib))
    assert list(again) == NAMES and np.array_equal(again.mine.scaled(x), x * 2)
    assert np.array_equal(pickle.loads(pickle.dumps(lib.scaled))(x), x * 2)
    assert list(pickle.loads(pickle.dumps(lib.mine))) == ["mine::add", "mine::scaled"]


def test_check_op(lib: Any) -> None:
    check_op(lib.square, sizes=[3])


@pytest.mark.parametrize("source", ["file", "package"])
def test_torch(paths: dict[str, Path], source: str) -> None:
    torch = pytest.importorskip("torch")
    import einkorn.torch

    lib = einkorn.load(paths[source])

    t = torch.arange(3.0, requires_grad=True)
    lib.square(t).sum().backward()
    assert t.grad.tolist() == [0, 2, 4]
    assert einkorn.torch.op(lib.scaled)(t.detach()).tolist() == [0, 2, 4]
    assert einkorn.torch.op("scaled", extensions=lib)(t.detach()).tolist() == [0, 2, 4]
    out = torch.empty(3)
    einkorn.torch.CustomOpLibrary(lib).add_one(out, t.detach())
    assert out.tolist() == [1, 2, 3]

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(t: Any) -> Any:
        return lib.deep.square(t) + lib["mine::add"](t, t)

    assert step(t.detach()).tolist() == [0, 3, 8]


def test_jax(lib: Any) -> None:
    jax = pytest.importorskip("jax")
    import einkorn.jax

    v = jax.numpy.arange(3.0)
    assert jax.grad(lambda v: lib.square(v).sum())(v).tolist() == [0, 2, 4]
    assert jax.jit(einkorn.jax.op(lib.scaled))(v).tolist() == [0, 2, 4]
    assert jax.jit(einkorn.jax.op("scaled", extensions=lib))(v).tolist() == [0, 2, 4]


def test_numba(lib: Any) -> None:
    numba = pytest.importorskip("numba")
    import einkorn.numba

    function = einkorn.numba.function(lib.scaled, by=3.0)
    assert numba.njit(lambda v: function(v))(x).tolist() == [0, 3, 6, 9]


def test_two_versions_do_not_mix(tmp_path: Path) -> None:
    for step in (1, 2):
        build_package(str(write(tmp_path / str(step), step)), str(tmp_path / f"{step}.pkg"), [])
    one, two = (einkorn.load(tmp_path / f"{step}.pkg") for step in (1, 2))
    for _ in range(4):  # doors open meanwhile
        assert one.add_one(x)[0] == 1 and two.add_one(x)[0] == 2
    assert pickle.loads(pickle.dumps(one)).add_one(x)[0] == 1
    graph = Graph("both", lambda v: one.add_one(v) + two.add_one(v), [TensorType(DType.float64, ["n"])])
    assert InferenceSession().load(graph)(x)[0].to_numpy()[0] == 3


def test_a_folder_that_changes_is_another_library(tmp_path: Path) -> None:
    one = einkorn.load(write(tmp_path, 1))
    two = einkorn.load(write(tmp_path, 20))
    assert one.add_one(x)[0] == 1 and two.add_one(x)[0] == 20 and one.add_one(x)[0] == 1


def test_a_package_that_is_replaced(tmp_path: Path) -> None:
    package = str(tmp_path / "ops.pkg")
    build_package(str(write(tmp_path / "kernels", 1)), package, [])
    one = einkorn.load(package)
    assert one.add_one(x)[0] == 1
    build_package(str(write(tmp_path / "kernels", 20)), package, [])
    assert (
        one.add_one(x)[0] == 1 and one.add_one(x.astype(np.int8))[0] == 1 and einkorn.load(package).add_one(x)[0] == 20
    )
    with pytest.raises(errors.PackageError, match=r"EK0536.*was replaced after it was loaded"):
        one.mine.scaled(x)


PROGRAM = """
import sys
import numpy as np
import einkorn
lib = einkorn.load(sys.argv[1])
assert not [name for name in sys.modules if name.split(".")[0] in ("llvmlite", "mlir", "torch_mlir")]
print(lib.add_one(np.zeros(2, np.float32)))
"""


@pytest.mark.parametrize(("target", "works"), [("x86-64-v2", True), ("aarch64", False)])
def test_without_a_compiler(paths: dict[str, Path], tmp_path: Path, target: str, works: bool) -> None:
    package = str(tmp_path / "ops.pkg")
    build_package(str(paths["file"]), package, [target], op="add_one")
    env = os.environ | {"EINKORN_NO_JIT": "1", "EINKORN_CACHE": "0"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, package], env=env, capture_output=True, text=True)
    if works:
        assert done.stdout == "[1. 1.]\n", done.stderr
    else:
        assert "error[EK0512]: op 'add_one' has no ready-made code for this machine" in done.stderr


@pytest.mark.parametrize(("text", "code"), [(None, "EK0501"), ("no package", "EK0552")])
def test_what_is_no_library(tmp_path: Path, text: str | None, code: str) -> None:
    path = tmp_path / "wrong.pkg"
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.PackageError) as caught:
        einkorn.load(path)
    assert caught.value.code == code and caught.value.place is not None and caught.value.place.file == __file__
    with pytest.raises(errors.PackageError, match="a library is loaded from a path, not from int"):
        einkorn.load(3)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="module 'einkorn' has no attribute 'lod'"):
        einkorn.lod  # type: ignore[attr-defined]  # noqa: B018


def test_public_modules_are_attributes() -> None:
    """`import einkorn` is enough, and imports none of them."""
    program = """
import sys
import einkorn
assert not any(name.startswith("einkorn.") for name in sys.modules), sys.modules
assert einkorn.errors.EinkornError and einkorn.dsl.register and einkorn.tensor.Tensor and einkorn.graph.Graph
assert not hasattr(einkorn, "no_such_module")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
