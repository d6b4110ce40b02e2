"""Pickle and copy: every public class, errors, kernels by name and by program, and what other processes get of them."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pickle
import pkgutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from einkorn.tensor import (
    EagerRealizationContext,
    GraphRealizationContext,
    LazyRealizationContext,
    RealizationContext,
    RealizationState,
    Tensor,
)

import einkorn
from einkorn import dsl, functional, graph, random, tensor, testing
from einkorn.dsl import DType, kernels_of
from einkorn.dsl.diagnostics.errors import CallErrors, EinkornError, GraphError, KernelError, UnpicklableError
from einkorn.dsl.diagnostics.places import Place
from einkorn.dsl.package import library, pickled
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    BufferType,
    DeviceRef,
    DeviceSpec,
    DeviceStream,
    Dim,
    Graph,
    InferenceSession,
    KernelLibrary,
    Model,
    Shape,
    TensorType,
    Weight,
    finfo,
    ops,
)
from einkorn.graph.interop import tools
from einkorn.stdlib import layout

from . import pickled_kernels as k

FILE = Path(k.__file__)
X = np.arange(6, dtype=np.float32)
TYPE = TensorType(DType.float32, ["n"], DeviceRef.CPU())
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

RELU_SCALED = """
from typing import TypeVar
from einkorn.dsl import Floating, InputTensor, OutputTensor, foreach, register

T = TypeVar("T", bound=Floating)

@register("text::relu_scaled")
def relu_scaled(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, by: float = 2.0):
    foreach(out, lambda i: max(x[i], T(0)) * by)
"""


def through(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


# *** every public class ***


def doubled() -> Graph:
    return Graph("doubled", lambda x: x * 2, [TYPE])


def weighted() -> Model:
    def forward(x: Any) -> Any:
        return x * Weight("w", DType.float32, [6], DeviceRef.CPU())

    made = Graph("weighted", forward, [TensorType(DType.float32, [6], DeviceRef.CPU())])
    return InferenceSession(num_threads=2, checks="safe").load(made, weights_registry={"w": X + 1})


def run(model: Any) -> Any:
    return model(X)[0].to_numpy().tolist()


def session_runs(session: InferenceSession) -> Any:
    return session.num_threads, str(session.checks), run(session.load(doubled()))


def library_runs(library: KernelLibrary) -> Any:
    made = Graph(
        "custom",
        lambda x: ops.custom("pickled::scaled", DeviceRef.CPU(), [x], [x.type])[0],
        [TYPE],
        kernel_library=library,
    )
    return run(InferenceSession().load(made)), run(InferenceSession().load(through(made)))


def value_graph(value: Any) -> str:
    with value.graph:
        value.graph.output(value * 2)
    return str(value.graph)


def waiting() -> Tensor:
    with functional.lazy():
        return Tensor.constant([1.0, 2.0]) * 3


# Of each public class: what makes an object, and what is equal of that and of what is read from its pickle.
MADE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Accelerator": (lambda: Accelerator("sim", like="sm_90"), lambda device: device.architecture_name),
    "AlgebraicDim": (lambda: Dim("n") * 2 + 1, lambda dim: dim),
    "Benchmark": (lambda: tools.Benchmark((tools.FunctionTimes("scaled", 2.0, 1.0),)), str),
    "Buffer": (lambda: Buffer.from_numpy(X.copy()), lambda buffer: buffer.to_numpy().tolist()),
    "BufferType": (lambda: BufferType(DType.float32, ["n", 3], DeviceRef.CPU()), lambda type: type),
    "BufferValue": (
        lambda: Graph("b", input_types=[BufferType(DType.float32, [3], DeviceRef.CPU())]).inputs[0],
        lambda value: str(value.type),
    ),
    "BoundModel": (lambda: weighted().bind(X), lambda model: model()[0].to_numpy().tolist()),
    "CPU": (CPU, lambda device: device),
    "CheckReport": (lambda: testing.check_op(k.square, callers=[]), str),
    "Compiled": (lambda: k.scaled.compile(TYPE, by=3.0), lambda compiled: compiled(X).tolist()),
    "CompiledModel": (
        lambda: InferenceSession().compile(doubled()),
        lambda compiled: run(InferenceSession().init(compiled)),
    ),
    "DebugConfig": (lambda: InferenceSession.debug, lambda debug: debug is InferenceSession.debug),
    "PrintStyle": (lambda: graph.PrintStyle.FULL, lambda member: member),
    "ConvInputLayout": (lambda: graph.ConvInputLayout.NHWC, lambda member: member),
    "ComposedLayout": (lambda: layout.ComposedLayout(layout.Swizzle(2, 2, 3), layout.Layout((8, 8), (8, 1))), str),
    "DType": (lambda: DType.bfloat16, lambda member: member),
    "Device": (CPU, lambda device: device),
    "DeviceKind": (lambda: graph.DeviceKind.GPU, lambda member: member),
    "DeviceRef": (lambda: DeviceRef.GPU(1), lambda ref: ref),
    "DeviceSpec": (lambda: DeviceSpec.cpu(), lambda spec: spec),
    "Dim": (lambda: Dim("n"), lambda dim: dim),
    "EagerRealizationContext": (EagerRealizationContext, lambda context: context.lazy),
    "FilterLayout": (lambda: graph.FilterLayout.RSCF, lambda member: member),
    "Graph": (doubled, lambda made: (str(made), run(InferenceSession().load(made)))),
    "GraphRealizationContext": (lambda: GraphRealizationContext(Graph("g")), lambda context: str(context.graph.name)),
    "InferenceSession": (lambda: InferenceSession(num_threads=2, checks="all"), session_runs),
    "InterpolationMode": (lambda: next(iter(graph.InterpolationMode)), lambda member: member),
    "KernelLibrary": (lambda: KernelLibrary([FILE]), library_runs),
    "Layout": (lambda: layout.Layout((4, 2), (2, 1)), str),
    "LazyRealizationContext": (LazyRealizationContext, lambda context: context.lazy),
    "Model": (weighted, lambda model: (run(model), [str(each) for each in model.input_metadata])),
    "Page": (lambda: k.scaled.explore(TYPE), lambda page: page),
    "Profile": (lambda: profiled(), lambda profile: [row.name for row in profile.rows()]),
    "RealizationContext": (RealizationContext, lambda context: context.lazy),
    "RealizationState": (lambda: RealizationState(doubled().inputs[0], None), lambda state: str(state.value.type)),
    "Shape": (lambda: Shape(["n", 3, Dim("n") + 1]), lambda shape: shape),
    "StaticDim": (lambda: Dim(3), lambda dim: dim),
    "Swizzle": (lambda: layout.Swizzle(2, 2, 3), str),
    "SymbolicDim": (lambda: Dim("rows"), lambda dim: dim),
    "Tensor": (lambda: waiting(), lambda made: (made.tolist(), made.dtype)),
    "TensorSpec": (lambda: weighted().input_metadata[0], lambda spec: spec),
    "TensorType": (lambda: TYPE, lambda type: type),
    "TensorValue": (lambda: Graph("v", input_types=[TYPE]).inputs[0], value_graph),
    "TuningTable": (lambda: tuned(), str),
    "Type": (lambda: TYPE, lambda type: type),
    "Value": (lambda: Graph("v", input_types=[TYPE]).inputs[0], value_graph),
    "Weight": (lambda: Weight("w", DType.float32, [3], DeviceRef.CPU(), align=64), lambda weight: repr(weight)),
    "finfo": (lambda: finfo(DType.float16), lambda info: info.max),
}


def profiled() -> Any:
    session = InferenceSession()
    with session.profile() as profile:
        run(session.load(doubled()))
    return profile


def tuned() -> Any:
    from einkorn.graph.tuning.table import Candidate, TuningTable

    return TuningTable("op", [(3,)], [Candidate({"by": 2}, 0.5)], 0)


def public_classes() -> dict[str, type]:
    """The classes among the public names, and those of which public functions and methods return objects."""
    collected: dict[str, type] = {}
    for module in (graph, tensor, functional, random, testing, layout):
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in names:
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("einkorn") and not issubclass(value, Exception):
                collected[name] = value
    collected |= {name: getattr(tools, name) for name in ("Benchmark", "Compiled", "Page")}
    collected["Profile"] = importlib.import_module("einkorn.graph.profiling.profile").Profile
    collected["TuningTable"] = importlib.import_module("einkorn.graph.tuning.table").TuningTable
    collected["BoundModel"] = importlib.import_module("einkorn.graph.calling.bound").BoundModel
    return collected


def test_the_table_has_each_public_class() -> None:
    assert sorted(public_classes()) == sorted({*MADE, *REFUSED, "DLPackArray"}), "each public class has a row"


@pytest.mark.parametrize("name", sorted(MADE))
def test_public_classes_are_pickled_and_copied(name: str) -> None:
    make, look = MADE[name]
    wanted = look(make())
    for protocol in PROTOCOLS:
        assert look(through(make(), protocol)) == wanted, protocol
    assert look(copy.copy(make())) == wanted
    assert look(copy.deepcopy(make())) == wanted
    made = make()
    pair = through([made, made])
    assert pair[0] is pair[1]


REFUSED: dict[str, Callable[[], Any]] = {"DeviceStream": lambda: DeviceStream(CPU())}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_lives_in_one_process_says_so(name: str) -> None:
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(UnpicklableError, match="EK0872") as caught:
            call(REFUSED[name]())
        assert isinstance(caught.value, TypeError) and caught.value.hint and caught.value.got in caught.value.message


@pytest.mark.parametrize("module", [dsl, functional, tensor, random], ids=lambda module: module.__name__)
def test_public_names_are_the_same_objects(module: ModuleType) -> None:
    """Functions, names of the language, dtypes, bounds: what a module exports is one object in a process."""
    wrong = []
    for name in module.__all__:
        value = getattr(module, name)
        try:
            same = [through(value) is value, copy.copy(value) is value, copy.deepcopy(value) is value]
        except Exception as error:
            wrong.append((name, repr(error)))
        else:
            wrong += [] if all(same) or through(value) == value else [(name, str(same))]
    assert wrong == []


# *** errors ***


def every_error() -> list[type[Exception]]:
    for entry in pkgutil.walk_packages(einkorn.__path__, "einkorn."):
        if entry.name.split(".")[1] in ("dsl", "graph", "compiler", "testing") and "__main__" not in entry.name:
            try:
                importlib.import_module(entry.name)
            except ImportError:  # of a library that is not installed
                continue

    def below(kind: type[Any]) -> list[type[Any]]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    return sorted({each for each in below(EinkornError) if each.__module__.startswith("einkorn")}, key=str)


def an_error(kind: type[Any]) -> Any:
    place = Place(str(FILE), 25, 5, 25, 12)
    details: dict[str, Any] = {
        "code": "EK0701",
        "place": place,
        "notes": ["first", "second"],
        "hint": "do that",
        "op": "scaled",
        "argument": "x",
        "expected": [1, "n"],
        "got": DType.float32,
        "chain": [place],
    }
    if issubclass(kind, CallErrors.__mro__[1]):
        return kind([GraphError("one", **details), GraphError("two", **details)], more=True)
    if kind.__name__ in ("NotFusible", "Stopped"):  # of the compiler's own, with other arguments
        return kind("llvm", "text")
    error = kind("it is wrong", **details)
    error.add_note("a note of Python")
    if isinstance(error, KernelError):
        error.index, error.tensor = (1, 2), "x"
    return error


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_errors_are_pickled_whole(kind: type[Any]) -> None:
    error = an_error(kind)
    copies = [through(error, protocol) for protocol in PROTOCOLS] + [copy.copy(error), copy.deepcopy(error)]
    for entry in copies:
        assert type(entry) is kind and entry.args == error.args
        assert str(entry) == str(error) and entry.to_dict() == error.to_dict()
        assert getattr(entry, "__notes__", None) == getattr(error, "__notes__", None)
        assert [str(each) for each in getattr(entry, "errors", [])] == [str(e) for e in getattr(error, "errors", [])]


def test_an_error_with_what_cannot_be_pickled_keeps_its_text() -> None:
    error = EinkornError("wrong", code="EK0850", got=lambda: 0, expected={"a": (lambda: 0,)})
    actual = through(error)
    assert actual.message == "wrong" and "function" in str(actual.got) and isinstance(actual.expected, str)


# *** kernels ***


def kernels() -> dict[str, Any]:
    return {name: value for name, value in vars(k).items() if isinstance(value, dsl.frontend.python.register.Kernel)}


def called(name: str, kernel: Any) -> Any:
    if name == "bump":
        x = X.copy()
        kernel(x)
        return x.tolist()
    if name == "checked":
        with pytest.raises(KernelError, match="seven is not allowed") as caught:
            kernel(np.array([1, 7], np.int32))
        return str(caught.value.place)
    given = {"total": (X, X, X), "square_backward": (X, X)}.get(name, (X,))
    return [kernel(*given).tolist() for _ in range(4)]  # the later ones by a door


@pytest.mark.parametrize("name", sorted(kernels()))
def test_kernels_of_a_module_are_the_same_objects(name: str) -> None:
    kernel = kernels()[name]
    wanted = called(name, kernel)
    for protocol in PROTOCOLS:
        assert through(kernel, protocol) is kernel
    assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel
    assert called(name, kernel) == wanted


@pytest.mark.parametrize("name", sorted(kernels()))
def test_kernels_run_where_their_module_cannot_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernels()[name]
    data = pickle.dumps(kernel)
    monkeypatch.setattr(pickled, "_by_name", lambda named, program: None)
    actual = pickle.loads(data)
    assert isinstance(actual, library.LibraryKernel) and pickle.loads(data) is actual and through(actual) is actual
    assert called(name, actual) == called(name, kernel)
    assert actual.schema.to_json() == kernel.schema.to_json() and actual.loaded.digest == kernel.loaded.digest
    if name == "square":
        assert isinstance(actual.gradient.compute, library.LibraryKernel)


def test_a_module_that_cannot_be_found_leaves_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vanishing.py").write_text(RELU_SCALED)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("vanishing")
    data, kernel = pickle.dumps(module.relu_scaled), module.relu_scaled
    assert pickle.loads(data) is kernel
    del sys.modules["vanishing"]
    actual = pickle.loads(data)
    assert actual is sys.modules["vanishing"].relu_scaled is not kernel  # imported again: as for functions
    del sys.modules["vanishing"]
    (tmp_path / "vanishing.py").unlink()
    importlib.invalidate_caches()
    assert pickle.loads(data)(X - 2, by=3.0).tolist() == kernel(X - 2, by=3.0).tolist()


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda text: text.replace("max(x[i], T(0))", "x[i]"), "where it is another kernel here"),
        (lambda text: text.replace("by: float = 2.0", "by: float = 3.0"), "where it is another kernel here"),
        (lambda text: "", "which has no such kernel here"),
    ],
)
def test_another_kernel_of_that_name_is_refused(
    change: Callable[[str], str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changing.py").write_text(RELU_SCALED)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("changing")
    data = pickle.dumps(module.relu_scaled)
    (tmp_path / "changing.py").write_text(change(RELU_SCALED) + "# longer, so that no bytecode of before is believed\n")
    del sys.modules["changing"]
    with pytest.raises(EinkornError, match="EK0871") as caught:
        pickle.loads(data)
    assert said in caught.value.message and "'changing'" in caught.value.message and caught.value.hint
    assert str(tmp_path / "changing.py") in caught.value.notes[0]
    # A comment changes no meaning.
    (tmp_path / "changing.py").write_text("# a comment\n" + RELU_SCALED)
    del sys.modules["changing"]
    assert pickle.loads(data) is sys.modules["changing"].relu_scaled
    del sys.modules["changing"]


def test_digests_of_another_version_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "_digest_of", lambda kernel: "of another version")
    monkeypatch.setattr(pickled, "_version", lambda: "0.0.1")
    data = pickle.dumps(k.scaled)
    monkeypatch.undo()
    assert pickle.loads(data) is k.scaled


def test_kernels_without_a_module_go_by_program() -> None:
    """Those of texts and of functions, with the files of their text, so that errors in other processes show it."""
    text = kernels_of(RELU_SCALED.replace("::relu", "::own_relu"))["text::own_relu_scaled"]

    @dsl.register("local")
    def local(out: dsl.OutputTensor[dsl.float32, "n"], x: dsl.InputTensor[dsl.float32, "n"]):
        dsl.foreach(out, lambda i: x[i] + 1)

    for kernel in (text, local):
        actual = through(kernel)
        assert actual is through(kernel) and actual(X - 2).tolist() == kernel(X - 2).tolist()
        files = {function.file for function in actual.loaded.portable.functions}
        assert kernel.function.__code__.co_filename in files


def test_pickled_programs_are_verified() -> None:
    """What a package refuses is refused here; the tables of programs are read by the same reader."""
    kernel = kernels_of(RELU_SCALED)["text::relu_scaled"]
    _, (named, (packed, files), tuning), *_ = kernel.__reduce__()
    data = json.loads(zlib.decompress(packed))
    changed: list[bytes] = [b"", b"no zlib", zlib.compress(b"[1"), zlib.compress(b"[]"), packed[:-20]]
    for name in data:
        changed.append(zlib.compress(json.dumps({key: each for key, each in data.items() if key != name}).encode()))
    data["functions"][0]["syntax"] = {"kind": "System", "command": "true"}
    changed.append(zlib.compress(json.dumps(data).encode()))
    changed.append(zlib.compress(b"[" + b" " * (17 << 20)))
    for each in changed:
        with pytest.raises(EinkornError, match="EK0510"):
            pickled.kernel_of(named, (each, files), tuning)
    for other in ((), (*files, "more"), tuple(map(len, files))):
        with pytest.raises(EinkornError, match="EK0510"):
            pickled.kernel_of(named, (packed, other), tuning)  # type: ignore[arg-type]


def test_ufuncs() -> None:
    """A ufunc goes with its kernel; those of NumPy stay as they are."""
    made = k.scaled.ufunc
    assert through(made) is made and copy.deepcopy(made) is made and through(np.add) is np.add


# *** other processes ***

MAIN = """
import multiprocessing, pickle, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
from einkorn.dsl.diagnostics.errors import KernelError
from einkorn.graph import DeviceRef, Graph, InferenceSession, TensorType, DType
import importable

@register("main::plus")
def plus(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] + 1)

@register("main::strict")
def strict(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def element(i):
        assert x[i] < 5, "five or more"
        return x[i]
    foreach(out, element)

def apply(given):
    what, x = given
    return np.asarray(what(x)[0].to_numpy() if hasattr(what, "execute") else what(x)).tolist()

def same(kernel):
    return kernel is plus or kernel is importable.relu_scaled

if __name__ == "__main__":
    x = np.arange(4, dtype=np.float32)
    graph = Graph("g", lambda a: a * 3, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    model = InferenceSession().load(graph)
    with ProcessPoolExecutor(1, multiprocessing.get_context(sys.argv[1])) as pool:
        for what in (plus, importable.relu_scaled, importable.relu_scaled.compile(x), model, plus.ufunc):
            assert pool.submit(apply, (what, x)).result() == apply((what, x)), what
        assert pool.submit(same, plus).result() and pool.submit(same, importable.relu_scaled).result()
        try:
            strict(x + 4)
        except KernelError as error:
            here = error
        there = pool.submit(apply, (strict, x + 4)).exception()
        assert type(there) is KernelError and there.code == here.code and there.place == here.place, there
        assert there.message == here.message and there.hint == here.hint and there.notes[0] == here.notes[0]
        assert 'assert x[i] < 5' in str(there)
    print("done")
"""


def in_a_process(folder: Path, script: str, *args: str) -> str:
    (folder / "script.py").write_text(script)
    (folder / "importable.py").write_text(RELU_SCALED)
    command = [sys.executable, str(folder / "script.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("start", ["spawn", "fork", "forkserver"])
def test_processes_of_python(start: str, tmp_path: Path) -> None:
    assert in_a_process(tmp_path, MAIN, start).strip() == "done"


SENT = """
import sys
import numpy as np
import {cloudpickle} as cloudpickle
from einkorn import functional as F
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register
import importable

FACTOR = 5

def helper(x):
    return x * FACTOR

@register("main::helped")
def helped(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: helper(x[i]))

@helped.backward
def helped_backward(context, grad):
    return (grad * FACTOR,)

@F.functional
def layer(x):
    return F.relu(x) * FACTOR

def work(x):
    return helped(x) + importable.relu_scaled(x)

with open("sent.pickle", "wb") as file:
    cloudpickle.dump([helped, work, layer, importable.relu_scaled, helped.ufunc], file)
"""

RECEIVED = """
import pickle, sys
import numpy as np
from einkorn.tensor import Tensor
helped, work, layer, imported, ufunc = pickle.load(open("sent.pickle", "rb"))
x = np.arange(3, dtype=np.float32)
assert helped(x).tolist() == [0, 5, 10] and work(x).tolist() == [0, 7, 14] and ufunc(x).tolist() == [0, 5, 10]
assert layer(Tensor.constant(x)).tolist() == [0, 5, 10]
assert helped.gradient.compute(None, 2) == (10,)
import importable
assert imported is importable.relu_scaled
print("done")
"""


def test_cloudpickle_sends_kernels_of_a_script(tmp_path: Path) -> None:
    """The copy of cloudpickle that numba brings."""
    pytest.importorskip("numba")
    in_a_process(tmp_path, SENT.replace("{cloudpickle}", "numba.cloudpickle"))
    assert in_a_process(tmp_path, RECEIVED).strip() == "done"


JOBS = """
import numpy as np
from joblib import Parallel, delayed
from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register

@register("main::helped")
def helped(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def element(i):
        assert x[i] < 100, "too large"
        return x[i] * 5
    foreach(out, element)

if __name__ == "__main__":
    x = np.arange(3, dtype=np.float32)
    assert [y.tolist() for y in Parallel(2)(delayed(helped)(x + k) for k in range(4))][1] == [5, 10, 15]
    try:
        Parallel(2)(delayed(helped)(x * k) for k in (1, 100))
    except Exception as error:
        assert error.code == "EK0701" and error.place.file == __file__ and "too large" in error.message
        print("done")
"""


def test_joblib_sends_kernels_of_a_script(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    assert in_a_process(tmp_path, JOBS).strip() == "done"


# *** callers ***


def test_graph_functions_and_tensor_functions_go_by_name() -> None:
    assert through(k.tensors) is k.tensors and through(functional.relu) is functional.relu
    assert copy.deepcopy(k.tensors)(Tensor.constant(X)).tolist() == k.tensors(Tensor.constant(X)).tolist()


def test_functions_of_numba() -> None:
    numba = pytest.importorskip("numba")
    function = importlib.import_module("einkorn.numba").function(k.scaled, by=4.0)
    actual = through(function)
    assert actual(X).tolist() == function(X).tolist() and copy.deepcopy(function) is function

    @numba.njit
    def twice(x: Any) -> Any:
        return actual(actual(x))

    assert twice(X).tolist() == (X * 144).tolist()


def test_ops_of_jax() -> None:
    jax = pytest.importorskip("jax")
    op = importlib.import_module("einkorn.jax").op(k.scaled)
    op.vmap = "sequential"
    actual = through(op)
    assert actual.kernel is k.scaled and actual.vmap == "sequential" and copy.deepcopy(op) is op
    assert jax.jit(actual)(X).tolist() == op(X).tolist() == (X * 6).tolist()


def test_ops_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    einkorn_torch = importlib.import_module("einkorn.torch")
    ops_of_file = einkorn_torch.CustomOpLibrary(FILE)
    op, given = einkorn_torch.op(k.scaled), ops_of_file["pickled::scaled"][{"by": 4.0}]
    for entry in (through(op), copy.copy(op), copy.deepcopy(op)):
        assert entry is op
    out = torch.empty(6)
    for entry in (given, through(given), through(ops_of_file)["pickled::scaled"][{"by": 4.0}], copy.deepcopy(given)):
        entry(out.zero_(), torch.from_numpy(X))
        assert out.tolist() == (X * 12).tolist()
    graph_op = einkorn_torch.graph_op(k.of_graph, name="pickled_of_graph")
    for entry in (graph_op, through(graph_op), copy.deepcopy(graph_op)):
        entry(out.zero_(), torch.from_numpy(X))
        assert out.tolist() == (X * 2 + 1).tolist()

    module = Layer(torch, op, graph_op, given)
    wanted = module(torch.from_numpy(X))
    torch.save(module, tmp_path / "module.pt")
    averaged = torch.optim.swa_utils.AveragedModel(module)  # a deep copy
    for entry in (torch.load(tmp_path / "module.pt", weights_only=False), copy.deepcopy(module), averaged):
        result = entry(torch.from_numpy(X))
        assert result.tolist() == wanted.tolist()
        result.sum().backward()
    assert averaged.module.weight.grad is not None and averaged.module.weight is not module.weight


def Layer(torch: Any, *ops: Any) -> Any:
    """A module of PyTorch that holds ops and a model."""
    made = TorchModule.made(torch)()
    made.weight = torch.nn.Parameter(torch.full((6,), 2.0))
    made.ops, made.model = list(ops), weighted()
    return made


class TorchModule:
    """Makes the class when PyTorch is there, under a name that pickle finds."""

    @staticmethod
    def made(torch: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            with torch.no_grad():
                bias = torch.from_dlpack(self.model(x)[0])
            return self.ops[0](x * self.weight) + bias

        kind = type("_TorchLayer", (torch.nn.Module,), {"forward": forward, "__module__": __name__})
        globals()["_TorchLayer"] = kind
        return kind
