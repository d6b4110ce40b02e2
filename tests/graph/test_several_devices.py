"""Graphs whose values lie on several devices: the host and two simulated GPUs that are not alike."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import graphs

from einkorn.compiler.build import build_package
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    BufferType,
    DeviceRef,
    DType,
    Graph,
    InferenceSession,
    TensorType,
    Weight,
    ops,
    parse_graph,
)
from einkorn.graph.engine.divided import DividedCaller
from einkorn.graph.engine.model import Model
from einkorn.graph.passes.devices import Copy, Segment, divide

HOST, GPU, OTHER = DeviceRef.CPU(), DeviceRef.GPU(0), DeviceRef.GPU(1)
HERE = Path(__file__).name


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


def devices(checks: str | None = None) -> list[Any]:
    return [CPU(), Accelerator("sim", checks=checks), Accelerator("sim", like="gfx942", checks=checks, number=1)]


def vector(dtype: DType = DType.float32, device: DeviceRef = HOST, shape: Any = ("n",)) -> TensorType:
    return TensorType(dtype, shape, device)


def loaded(forward: Callable[..., Any], *types: Any, checks: str | None = None, **options: Any) -> Model:
    graph = Graph("test", forward, types or [vector()])
    return InferenceSession(devices=devices(checks), checks=checks).load(graph, **options)


def code_of(wrong: Callable[[], Any]) -> str:
    with pytest.raises(EinkornError) as caught:
        wrong()
    return caught.value.code


def test_there_and_back() -> None:
    def forward(x: Any) -> Any:
        y = ops.exp(x) * 2.0
        h = ops.softmax(y.to(GPU)) + y.to(GPU).sum(axis=0)
        return h.to(HOST) - x, h, (h.to(OTHER) * 3.0).to(HOST), y

    for checks in (None, "all"):
        model = loaded(forward, vector(shape=("n", 3)), checks=checks)
        for n in (4, 0, 1, 7):
            x = np.random.default_rng(n).random((n, 3), np.float32)
            y = np.exp(x) * 2
            h = np.exp(y - y.max(-1, keepdims=True)) if n else y
            h = h / h.sum(-1, keepdims=True) + y.sum(0, keepdims=True)
            for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
                results = model(given)
                assert [str(r.device).split()[0] for r in results] == ["cpu:0", "gpu:0", "cpu:0", "cpu:0"]
                for got, wanted in zip(results, (h - x, h, h * 3, y), strict=True):
                    np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.int4, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.uint64, np.float64]
)
def test_elements_of_every_width_are_moved(dtype: Any) -> None:
    kind = DType.from_numpy(np.dtype(dtype))
    model = loaded(lambda x: [x.to(GPU).to(OTHER).to(HOST), x.to(OTHER)], vector(kind, shape=("n", "m")))
    for shape in ((3, 3), (0, 5), (1, 1), (4, 7)):
        x = np.random.default_rng(3).integers(0, 2, shape).astype(dtype)
        for given in (x,) if kind.is_packed() else (x, np.asfortranarray(x), x[::-1]):
            for got in model(given):
                assert got.shape == shape and np.array_equal(got.to_numpy(), given)


def test_segments_are_as_few_as_copies_allow() -> None:
    def forward(x: Any) -> Any:
        a, b = (x * 2.0).to(GPU), (x * 3.0).to(GPU)  # two copies, and one segment behind both
        return ops.exp(a) + ops.exp(b), x.to(OTHER) * 4.0

    steps = divide(Graph("test", forward, [vector()]).ir)
    assert [str(step.device) if isinstance(step, Segment) else "copy" for step in steps] == [
        *("copy", "cpu:0", "gpu:1", "copy", "copy", "gpu:0"),
    ]
    assert all(isinstance(step, Segment | Copy) for step in steps)
    dead = Graph("dead", lambda x: (ops.exp(x.to(GPU)), x + 1.0)[1], [vector()])
    assert len(dead.ir.devices) == 2 and [str(step.device) for step in divide(dead.ir)] == ["cpu:0"]  # type: ignore[union-attr]


def test_constants_and_weights_are_copied_once() -> None:
    numbers = np.arange(9, dtype=np.float32).reshape(3, 3)
    weight = Weight("w", DType.float32, [3, 3], HOST)
    far = Weight("far", DType.float32, [3], GPU)

    def forward(x: Any) -> Any:
        graph = Graph.current
        near, there = graph.add_weight(weight).to(GPU), graph.add_weight(far)
        y = x.to(GPU) @ near + there + ops.constant(numbers, DType.float32, HOST).to(GPU)[0]
        return y.to(HOST), graph.add_weight(weight).to(OTHER)

    graph = Graph("weights", forward, [vector(shape=("n", 3))])
    assert str(graph).count("transfer_to") == 4, "a constant is made where it is wanted"
    here = devices()
    bias = Buffer.from_numpy(np.ones(3, np.float32)).to(here[1])
    registry = {"w": numbers.copy(), "far": bias}
    model = InferenceSession(devices=here).load(graph, weights_registry=registry)
    x = np.eye(3, dtype=np.float32)[:2]
    models = [model, model.clone(), copy.deepcopy(model)]
    registry["w"][:] = -1.0  # what was copied is not read again
    for each in models:
        y, w = each(x)
        np.testing.assert_array_equal(y.to_numpy(), numbers[:2] + 1 + numbers[0])
        np.testing.assert_array_equal(w.to_numpy(), numbers)
        w.inplace_copy_from(Buffer.zeros((3, 3), DType.float32))  # a result is the caller's
    assert model.memory["constants"] >= 3 * 36


def test_outputs_that_are_inputs_or_given_twice() -> None:
    model = loaded(lambda x: (x, y := x.to(GPU), y, x, y.to(HOST)))
    x = np.arange(5, dtype=np.float32)
    results = model(x)
    assert all(np.array_equal(each.to_numpy(), x) for each in results)
    assert len({each.address for each in results} | {x.ctypes.data}) == 6
    near, far = Buffer(DType.float32, (5,)), Buffer(DType.float32, (5,), devices()[1])
    given = model.execute(x, out=[near, None, far, None, None])
    assert given[0] is near and given[2] is far and all(np.array_equal(each.to_numpy(), x) for each in given)
    assert code_of(lambda: model.execute(x, out=[Buffer(DType.float32, (4,)), *[None] * 4])) == "EK0454"
    assert code_of(lambda: model.execute(x, out=[None, near, None, None, None])) == "EK0430"
    assert code_of(lambda: model.execute(x, out=[x, *[None] * 4])) == "EK0462"
    assert code_of(lambda: model(x, x)) == "EK0451" and code_of(lambda: model(x[None])) == "EK0454"
    assert code_of(lambda: model(far)) == "EK0430"


def test_sizes_that_are_computed_cross_devices() -> None:
    def forward(x: Any) -> Any:
        picked = ops.squeeze(ops.nonzero(x.to(GPU) > 0.5, "k"), 1)
        values = ops.gather(x, picked.to(HOST), 0)
        return values, values.to(OTHER) * 2.0, ops.concat([x, values])

    model = loaded(forward)
    for n in (10, 0, 3, 10):
        x = np.random.default_rng(n).random(n, np.float32)
        kept = x[x > 0.5]
        for got, wanted in zip(model(x), (kept, kept * 2, np.concatenate([x, kept])), strict=True):
            np.testing.assert_array_equal(got.to_numpy(), wanted)
    assert code_of(lambda: model.capture(x)) == "EK0467"


def test_conditions_on_sizes_are_those_of_the_whole_graph() -> None:
    model = loaded(lambda x, y: ops.rebind(x.to(GPU), ["m"]).to(HOST) + y, vector(), vector(shape=("m",)))
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(model(x, x)[0].to_numpy(), x + x)
    assert code_of(lambda: model(x, x[1:])) == "EK0454"


def test_branches_and_loops_run_on_one_device() -> None:
    def forward(x: Any) -> Any:
        total = ops.sum(x.to(GPU), 0, keepdims=False)
        far = x.to(GPU)
        (y,) = ops.cond(total > 3.0, [far.type], lambda: far * 2.0, lambda: far - 1.0)
        z, n = ops.while_loop((y.to(OTHER), 0), lambda a, n: n < 3, lambda a, n: [a + 1.0, n + 1])
        return z.to(HOST), ops.while_loop((x, 0), lambda a, n: n < 2, lambda a, n: [a * y.to(HOST), n + 1])[0], n

    with pytest.raises(EinkornError, match="cannot be made in a body of control flow, here body of while_loop") as no:
        Graph("test", forward, [vector()])
    assert no.value.code == "EK0809" and no.value.place is not None and no.value.place.file.endswith(HERE)

    def better(x: Any) -> Any:
        far = x.to(GPU)
        total = ops.sum(far, 0, keepdims=False)
        (y,) = ops.cond(total > 3.0, [far.type], lambda: far * 2.0, lambda: far - 1.0)
        z, _ = ops.while_loop((y.to(OTHER), 0), lambda a, n: n < 3, lambda a, n: [a + 1.0, n + 1])
        near = y.to(HOST)
        return z.to(HOST), ops.while_loop((x, 0), lambda a, n: n < 2, lambda a, n: [a * near, n + 1])[0]

    model = loaded(better)
    for x in (np.ones(5, np.float32), np.ones(2, np.float32)):
        y = x * 2 if x.sum() > 3 else x - 1
        z, w = model(x)
        np.testing.assert_array_equal(z.to_numpy(), y + 3)
        np.testing.assert_array_equal(w.to_numpy(), x * y * y)


def test_a_body_that_reads_another_device_is_refused() -> None:
    def forward(x: Any, far: Any, memory: Any) -> Any:
        def store() -> None:
            ops.buffer_store(memory, far)

        ops.cond(ops.sum(x, 0, keepdims=False) > 0.0, None, store, lambda: None)
        return x

    types = [vector(), vector(device=GPU), BufferType(DType.float32, ["n"], GPU)]
    with pytest.raises(EinkornError, match=r"cond: it has values on .* and a branch or loop runs on one device") as no:
        loaded(forward, *types)
    assert no.value.code == "EK0809" and no.value.place is not None and no.value.place.file.endswith(HERE)


def test_operands_on_different_devices_are_named() -> None:
    for forward in (
        lambda x, y: x + y,
        lambda x, y: ops.concat([x, y]),
        lambda x, y: ops.where(x > 0.0, x, y),
        lambda x, y: x @ y,
    ):
        with pytest.raises(EinkornError, match=r"lies on gpu:0, and argument .* lies on cpu:0") as no:
            Graph("test", forward, [vector(), vector(device=GPU)])
        assert no.value.code == "EK0430" and no.value.op and no.value.argument
        assert no.value.hint == "move it with .to(DeviceRef.CPU(0))"
        assert no.value.place is not None and no.value.place.file.endswith(HERE)


def test_effects_keep_their_order(capfd: pytest.CaptureFixture[str]) -> None:
    def forward(x: Any, memory: Any, far: Any) -> Any:
        ops.print(x, "first")
        ops.buffer_store(far, ops.buffer_load(far) + x.to(GPU))
        y = ops.buffer_load(far).to(HOST)
        ops.buffer_store(memory, ops.buffer_load(memory) + y)
        ops.print(y, "second")
        ops.buffer_store(far, ops.buffer_load(far) * 10.0)

    types = [vector(), BufferType(DType.float32, ["n"], HOST), BufferType(DType.float32, ["n"], GPU)]
    model = loaded(forward, *types)
    x = np.ones(2, np.float32)
    memory, far = Buffer.from_numpy(x * 5), Buffer.from_numpy(x * 7).to(devices()[1])
    assert model(x, memory, far) == []
    assert memory.to_numpy().tolist() == [13.0, 13.0] and far.to_numpy().tolist() == [80.0, 80.0]
    printed = capfd.readouterr().out
    assert 0 <= printed.index("first") < printed.index("second")


def test_every_form_of_execution() -> None:
    model = loaded(lambda x: (ops.exp(x.to(GPU)) * 2.0).to(HOST) + x)
    x = np.random.default_rng(1).random(6, np.float32)
    wanted = np.exp(x) * 2 + x

    def check(result: Buffer, expected: Any = wanted) -> None:
        np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-5)

    check(model.run_slots(x)[0])
    assert model.run_slots(x)[0].address == model.run_slots(x)[0].address
    for results in model.run_pipelined([[x], [x]]):
        check(results[0])
    check(model.bind(x).execute()[0])
    check(pickle.loads(pickle.dumps(model))(x)[0])
    data, dtype = model.run_typed([(x.tobytes(), DType.float32)])[0]
    np.testing.assert_allclose(np.frombuffer(data, dtype.to_numpy()), wanted, rtol=1e-5)
    model.set_active_extent(n=3)
    check(model(x)[0], np.where(np.arange(6) < 3, wanted, 0))
    model.set_active_extent(None)
    held = x.copy()
    (captured,) = model.capture(7, held)
    check(captured)
    held[:] = 0
    model.replay(7, held)
    check(captured, np.full(6, 2.0))
    model.debug_verify_replay(7, held)
    model.cancel()  # no call is under way
    check(model(x)[0])


def test_threads() -> None:
    model = loaded(lambda x: (ops.exp(x.to(GPU)) * 2.0).to(OTHER).to(HOST) + x)
    wrong: list[Any] = []

    def work(first: int) -> None:
        for n in range(first, first + 12):
            x = np.random.default_rng(n).random(n, np.float32)
            if not np.allclose(model(x)[0].to_numpy(), np.exp(x) * 2 + x, rtol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_copies_are_shown_where_steps_are() -> None:
    def forward(x: Any) -> Any:
        return (ops.softmax(ops.exp(x).to(GPU) * 2.0) @ ops.constant(np.eye(3)[:, :2], DType.float32, GPU)).to(
            HOST
        ) + 1.0

    graph = Graph("shown", forward, [vector(shape=("n", 3))])
    assert str(parse_graph(str(graph))) == str(graph)
    session = InferenceSession(devices=devices("all"))
    model = session.load(graph)
    x = np.ones((2, 3), np.float32)
    with session.profile() as profile:
        model(x)
    rows = {row.number: row for row in profile.rows()}
    names = [rows[number].name for number in sorted(rows)]
    assert sorted(rows) == list(range(len(rows)))
    assert names[1] == "copy from cpu:0 to gpu:0" and names[-2] == "copy from gpu:0 to cpu:0"
    assert rows[1].details["bytes"] == 24 and HERE in rows[1].details["places"][0]
    summaries = model.kernel_summaries
    assert [s.name for s in summaries if s.name == "transfer_to"] == ["transfer_to"] * 2
    assert len(summaries) == len(rows) and all(
        getattr(graph.ir.nodes[op.node], "name", "") == op.name for summary in summaries for op in summary.ops
    )
    assert profile.counted and model.count_memory(x).lines
    assert "transfer_to" in graph.to_dot()
    page = graph.to_html(profile=profile)
    assert "on cpu:0 and gpu:0" in page and page.count("<b>transfer_to</b>") >= 2
    assert isinstance(model._own, DividedCaller)
    again = session.load(graph)._own
    assert {code.tier for code in again.codes()} == {"cache"}


def test_findings_on_either_side(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "from einkorn.dsl import *\n\n\n"
        '@register("holey")\n'
        'def holey(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:\n'
        "    def body(i):\n"
        "        if i > 0:\n"
        "            out[i] = x[i]\n\n"
        "    parallel_for(x.dim(0), body)\n"
    )

    def forward(device: DeviceRef) -> Any:
        def build(x: Any) -> Any:
            y = ops.custom("holey", device, [x.to(device)])[0]
            return y.to(HOST if device == GPU else GPU) + 1.0

        return build

    for device in (HOST, GPU):
        graph = Graph("holes", forward(device), [vector()], custom_extensions=[file])
        model = InferenceSession(devices=devices("all"), checks="all").load(graph)
        with pytest.raises(EinkornError, match="'out' of op 'holey'") as no:
            model(np.ones(3, np.float32))
        assert no.value.code == "EK0706"


def test_simulated_gpus_have_numbers() -> None:
    one, other = Accelerator("sim"), Accelerator("sim", number=1)
    assert one == Accelerator("sim", number=0) != other and str(other) == "gpu:1 (sim:sm_90a)"
    assert pickle.loads(pickle.dumps(other)) == other and one.driver is not other.driver
    for wrong in (-1, True, "1", 1 << 20):
        assert code_of(lambda wrong=wrong: Accelerator("sim", number=wrong)) == "EK0801"
    graph = Graph("far", lambda x: x * 2.0, [vector(device=OTHER)])
    model = InferenceSession(devices=[one, other]).load(graph)
    x = Buffer.from_numpy(np.ones(3, np.float32))
    assert model(x.to(other))[0].device == other and code_of(lambda: model(x.to(one))) == "EK0430"
    both = InferenceSession(devices=[CPU(), other])
    assert code_of(lambda: both.load(Graph("near", lambda x: x.to(GPU), [vector()]))) == "EK0806"


def test_segments_take_code_from_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that is one op of a package runs its ready-made code; what only moves values needs none."""
    file = tmp_path / "kernels.py"
    file.write_text(
        "from einkorn.dsl import *\n\n\n"
        '@register("doubled")\n'
        'def doubled(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:\n'
        "    foreach(out, lambda i: x[i] * 2.0)\n"
    )
    build_package(str(file), str(tmp_path / "lib.pkg"), ["host"])
    file.unlink()

    def forward(x: Any) -> Any:
        return ops.custom("doubled", HOST, [x.to(GPU).to(HOST)])[0].to(OTHER)

    graph = Graph("packaged", forward, [vector()], custom_extensions=[tmp_path / "lib.pkg"])
    monkeypatch.setenv("EINKORN_NO_JIT", "1")
    model = InferenceSession(devices=devices()).load(graph)
    assert ["lib.pkg" in code.tier for code in model._own.codes()] == [True]
    np.testing.assert_array_equal(model(np.ones(3, np.float32))[0].to_numpy(), [2, 2, 2])


def test_calls_are_cancelled() -> None:
    def forward(x: Any, n: Any) -> Any:
        y = (x.to(GPU) * 2.0).to(HOST)
        z, _ = ops.while_loop((y, 0), lambda a, k: k < n, lambda a, k: [a + 1.0, k + 1])
        return z.to(OTHER)

    model = loaded(forward, vector(), vector(DType.int64, shape=()))
    x, over = np.ones(4, np.float32), threading.Event()

    def cancel() -> None:
        while not over.wait(0.05):
            model.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        assert code_of(lambda: model(x, 10**15)) == "EK0707"
    finally:
        over.set()
        canceller.join()
    np.testing.assert_array_equal(model(x, 3)[0].to_numpy(), x * 5)


def test_failures_are_those_of_their_op(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "from einkorn.dsl import *\n\n\n"
        '@register("guarded")\n'
        'def guarded(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:\n'
        "    def body(i):\n"
        '        assert x[i] > 0.0, "is positive"\n'
        "        out[i] = x[i]\n\n"
        "    parallel_for(x.dim(0), body)\n"
    )
    for device in (HOST, GPU):

        def forward(x: Any, device: DeviceRef = device) -> Any:
            return ops.custom("guarded", device, [x.to(device)])[0].to(OTHER)

        graph = Graph("guarded", forward, [vector()], custom_extensions=[file])
        model = InferenceSession(devices=devices()).load(graph)
        with pytest.raises(EinkornError, match="is positive") as no:
            model(np.array([1, -1], np.float32))
        assert no.value.code == "EK0701" and no.value.place is not None and no.value.place.line == 7
        assert any(HERE in note for note in no.value.notes)
        np.testing.assert_array_equal(model(np.ones(2, np.float32))[0].to_numpy(), [1, 1])
