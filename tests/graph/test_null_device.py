"""A kind of device is one file and one row: graphs on the null device are staged, planned, compiled, called."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.null_device import NullDriver, null_kind

import einkorn
from einkorn.dsl.diagnostics.errors import DeviceError, DTypeError, EinkornError, GraphError, KernelError
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
    accelerator_count,
    ops,
    scan_available_devices,
)
from einkorn.graph.driver import devices
from einkorn.graph.ir import ConstantTensor, GraphIR, Node
from einkorn.graph.loading.cache_keys import graph_key
from einkorn.graph.passes.fusion import partition
from einkorn.graph.passes.memory_plan import make_plan

ROOT = Path(einkorn.__file__).resolve().parent
GPU = DeviceRef.GPU()
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[NullDriver]:
    """A machine with two null devices, and a cache of its own; the driver of the first."""
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(devices, "KINDS", [*devices.KINDS, null_kind()])
    driver = Accelerator(0).driver
    assert isinstance(driver, NullDriver)
    yield driver


def scaled(device: DeviceRef = GPU, factor: float = 2.0) -> Graph:
    """Two ops that are fused, and two that are not, over a constant."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)

    def forward(x: Any) -> Any:
        y = ops.softmax(x * factor + 1.0)
        return y @ ops.constant(weights, DType.float32, device), ops.sum(y, axis=0)

    return Graph("scaled", forward=forward, input_types=[TensorType(DType.float32, ["m", 3], device)])


def on_device(array: Any) -> Buffer:
    return Buffer.from_numpy(array).to(GPU)


def code_of(wrong: Any) -> str:
    with pytest.raises(EinkornError) as caught:
        wrong()
    return caught.value.code


def test_it_is_found() -> None:
    assert accelerator_count() == 2
    assert scan_available_devices() == [Accelerator(0), Accelerator(1)]
    device = GPU.to_device()
    assert (device.label, device.api, str(device), device.is_host) == ("gpu", "null", "gpu:0", False)
    assert device.architecture_name == "null_1" and Accelerator(1).stats == {"name": "null device 1"}
    assert device.driver is Accelerator(0).driver is not Accelerator(1).driver
    with pytest.raises(DeviceError, match="there is no gpu:2 to run on: this machine has 2"):
        Accelerator(2)


def test_it_waits(driver: NullDriver) -> None:
    Accelerator(0).synchronize()
    assert driver.waits == 1


def test_the_product_does_not_know_it() -> None:
    files = [
        *ROOT.glob("*.py"),
        *(f for floor in ("dsl", "compiler", "stdlib", "graph") for f in (ROOT / floor).rglob("*")),
    ]
    texts = {f: f.read_text() for f in files if f.suffix in (".py", ".pyi", ".md")}
    assert len(texts) > 200
    assert not [f for f, text in texts.items() if re.search(r"null_device|NullDriver|null_kind|api\W+\"null\"", text)]


def test_no_file_but_the_table_compares_kinds_of_devices() -> None:
    compared = re.compile(r"\.label\b|\.is_cpu\(\)|\.is_gpu\(\)|\.api\b|DeviceKind\.")
    files = {f.relative_to(ROOT).as_posix(): f.read_text() for f in (ROOT / "graph").rglob("*.py")}
    assert [name for name, text in files.items() if compared.search(text)] == ["graph/driver/devices.py"]


# *** buffers ***


def test_buffers_are_moved_there_and_back(driver: NullDriver) -> None:
    buffer = on_device(X)
    assert driver.live == {buffer.address: 24} and driver.copies == [("DeviceMemory", "ndarray")]
    assert (buffer.dtype, buffer.shape, buffer.rank, len(buffer)) == (DType.float32, (2, 3), 2, 2)
    assert repr(buffer) == "Buffer(float32, (2, 3), gpu:0)" and buffer.is_contiguous and not buffer.is_read_only
    assert (buffer.num_elements, buffer.element_size, buffer.size_in_bytes, buffer.pinned) == (6, 4, 24, False)
    assert buffer.to(GPU) is buffer and buffer.to(Accelerator(0)) is buffer
    back = buffer.to(CPU())
    assert back.is_host and back.shape == (2, 3) and driver.copies[-1] == ("ndarray", "DeviceMemory")
    assert buffer.to_numpy().shape == np.asarray(buffer).shape == (2, 3)
    near = buffer.copy()
    assert near.device == Accelerator(0) and driver.copies[-1] == ("DeviceMemory", "DeviceMemory")
    far = buffer.to(DeviceRef.GPU(1))
    assert far.device == Accelerator(1) and driver.copies[-1] == ("ndarray", "DeviceMemory")
    near.inplace_copy_from(back)
    back.inplace_copy_from(near)
    assert driver.copies[-2:] == [("DeviceMemory", "ndarray"), ("ndarray", "DeviceMemory")]
    del buffer, near, far
    gc.collect()
    assert driver.live == {}


@pytest.mark.parametrize("dtype", DType)
def test_buffers_of_every_dtype_are_cleared(driver: NullDriver, dtype: DType) -> None:
    buffer = Buffer.zeros((3, 5), dtype, GPU)
    assert driver.fills == [(dtype.bytes_for(15), 0 if dtype is not DType.float8_e8m0fnu else 255)]
    assert buffer.to_numpy().dtype == dtype.to_numpy() and buffer.to_numpy().shape == (3, 5)
    assert buffer.to(CPU()).dtype is dtype


def test_buffers_are_written_and_viewed(driver: NullDriver) -> None:
    buffer = Buffer.scalar(3.5, DType.float32, GPU)
    assert isinstance(buffer.item(), float) and buffer.shape == ()
    wide = Buffer(DType.float32, (4, 3), GPU)
    wide[1:3, 0] = 2.0
    assert driver.copies[-2:] == [("ndarray", "DeviceMemory"), ("DeviceMemory", "ndarray")]
    bytes_ = wide.view(DType.uint8)
    assert bytes_.shape == (4, 12) and bytes_.address == wide.address and bytes_.device == wide.device
    address = wide.address
    del wide
    assert address in driver.live, "a view keeps the memory"
    assert code_of(lambda: bytes_[0]) == "EK0804"
    with pytest.raises(BufferError, match="copy it to the host"):
        np.from_dlpack(bytes_)
    packed = on_device(np.zeros((3, 3), ml_dtypes.int4))
    assert packed.size_in_bytes == 5 and packed.to_numpy().dtype == ml_dtypes.int4


def test_there_is_not_enough_memory(driver: NullDriver) -> None:
    driver.most = 100
    assert code_of(lambda: Buffer(DType.uint8, (101,), GPU)) == "EK0808"
    model = InferenceSession([Accelerator(0)]).load(scaled())
    x = Buffer(DType.float32, (2, 3), GPU)
    driver.most = 20
    with pytest.raises(DeviceError, match="cannot be allocated") as caught:
        model(x)
    assert caught.value.code == "EK0813"


# *** graphs ***


def test_a_graph_is_planned_for_it() -> None:
    ir = scaled().ir
    assert "gpu:0" in str(ir) and "cpu" not in str(ir) and ir.device == GPU
    model = InferenceSession([Accelerator(0)]).load(scaled())
    entry = model.code.plan.entry
    assert entry is not None
    assert {buffer.device for buffer in entry.buffers} == {group.device for group in entry.groups} == {"gpu:0"}
    assert {buffer.role for buffer in entry.buffers} == {"input", "output", "temp", "constant"}
    on_host = InferenceSession().load(scaled(DeviceRef.CPU())).code.plan.entry
    assert on_host is not None and {buffer.device for buffer in on_host.buffers} == {"cpu:0"}


def test_code_comes_in_two_halves_and_half_of_it_is_a_miss(driver: NullDriver, tmp_path: Path) -> None:
    session = InferenceSession([Accelerator(0)])
    assert session.load(scaled()).code.tier == "compiled"
    (pieces,) = driver.loaded
    assert [piece.kind for piece in pieces] == ["so", "ptx"]
    assert pieces[0].read()[:4] == b"\x7fELF" and b".target sm_80" in pieces[1].read()
    assert [piece.target.split("-")[0] for piece in pieces] == ["host", "sm_80"]
    assert session.load(scaled()).code.tier == "cache"
    for piece in pieces:
        kept = piece.path.read_bytes()
        for damage in (b"", kept[:-60]):
            damaged = tmp_path / "damaged"  # another file: this process has the old one mapped
            damaged.write_bytes(damage)
            damaged.replace(piece.path)
            assert session.load(scaled()).code.tier == "compiled"
            assert piece.path.read_bytes() == kept
    for file in (tmp_path / "cache").rglob("*.json"):
        file.unlink()
    assert session.load(scaled()).code.tier == "compiled"


def test_keys_distinguish_devices_and_targets() -> None:
    keys = {
        graph_key(scaled(device).ir, targets, True, None)  # type: ignore[arg-type]  # checks are only printed
        for device in (DeviceRef.CPU(), GPU)
        for targets in (["a"], ["a", "b"], ["b", "a"])
    }
    assert len(keys) == 6


def test_a_model_is_called_and_dropped(driver: NullDriver) -> None:
    session = InferenceSession([Accelerator(0), CPU()])
    model, on_host = session.load(scaled()), session.load(scaled(DeviceRef.CPU()))
    assert driver.copies == [("DeviceMemory", "ndarray")], "the constant"
    assert model.input_metadata[0].device == GPU
    x = on_device(X)
    first, second = model(x)
    assert first.device == second.device == Accelerator(0) and (first.shape, second.shape) == ((2, 4), (1, 3))
    assert len(driver.launches) == 1
    again = model(x)[0]
    assert again.address != first.address and len(driver.launches) == 2
    assert on_host(X)[0].is_host and len(driver.launches) == 2
    wide = model(on_device(np.ones((5, 3), np.float32)))[0]
    assert wide.shape == (5, 4) and driver.live[wide.address] == 80
    del x, first, second, again, wide, model
    gc.collect()
    assert driver.live == {}


def test_nothing_moves_by_itself() -> None:
    session = InferenceSession([Accelerator(0), Accelerator(1), CPU()])
    model, on_host = session.load(scaled()), session.load(scaled(DeviceRef.CPU()))
    assert code_of(lambda: model(Buffer.from_numpy(X))) == "EK0430"
    assert code_of(lambda: model(Buffer.from_numpy(X).to(DeviceRef.GPU(1)))) == "EK0430"
    assert code_of(lambda: on_host(on_device(X))) == "EK0430"
    assert code_of(lambda: model(on_device(X[0]))) == "EK0454"
    for value in (X, 1.0, on_device(X.astype(np.float64))):
        with pytest.raises(DTypeError, match="has to be a Buffer of float32 on gpu:0") as caught:
            model(value)
        assert caught.value.code == "EK0452"


def test_sessions_know_their_devices() -> None:
    with pytest.raises(DeviceError, match="uses gpu:0, and the session has cpu:0"):
        InferenceSession().load(scaled())
    types = [TensorType(DType.float32, ["n"], device) for device in (GPU, DeviceRef.CPU())]
    graph = Graph("both", forward=lambda x, y: [x * 2.0, y * 3.0], input_types=types)
    assert graph.ir.devices == (GPU, DeviceRef.CPU())
    with pytest.raises(GraphError, match="has values on gpu:0 and on cpu:0") as caught:
        _ = graph.ir.device
    assert caught.value.code == "EK0430"
    with pytest.raises(DeviceError, match="uses cpu:0, and the session has gpu:0"):
        InferenceSession([Accelerator(0)]).load(graph)


def test_transfers_are_copies_of_the_driver(driver: NullDriver) -> None:
    def forward(x: Any) -> Any:
        near = (x + 1.0).to(GPU)
        far = ops.exp(near).to(DeviceRef.GPU(1))
        return [near, ops.exp(far).to(DeviceRef.CPU())]

    graph = Graph("there", forward=forward, input_types=[TensorType(DType.float32, ["n", 3], DeviceRef.CPU())])
    session = InferenceSession([CPU(), Accelerator(0), Accelerator(1)])
    model = session.load(graph)
    other = Accelerator(1).driver
    assert isinstance(other, NullDriver)
    before = len(other.launches)
    near, back = model(X)
    assert near.device == Accelerator(0) and back.is_host and back.shape == (2, 3)
    assert driver.copies == [("DeviceMemory", "ndarray"), ("ndarray", "DeviceMemory")] and len(driver.launches) == 1
    assert len(other.launches) == before + 1
    assert [code.tier for code in session.load(graph)._own.codes()] == ["cache"] * 3
    del near, back
    gc.collect()
    assert set(driver.live.values()) <= {0}, "what a call copies is dropped behind its last reader"


def test_memory_is_changed_in_place(driver: NullDriver) -> None:
    def forward(memory: Any, x: Any) -> None:
        ops.buffer_store(memory, ops.buffer_load(memory) + x)

    types = [BufferType(DType.float32, ["n"], GPU), TensorType(DType.float32, ["n"], GPU)]
    model = InferenceSession([Accelerator(0)]).load(Graph("kept", forward=forward, input_types=types))
    memory, x = on_device(X[0]), on_device(X[1])
    assert model(memory, x) == [] and len(driver.launches) == 1
    assert code_of(lambda: model(memory, memory)) == "EK0462"


def test_a_failed_launch_says_what_the_device_says(driver: NullDriver) -> None:
    model = InferenceSession([Accelerator(0)]).load(scaled())
    driver.result = 700
    with pytest.raises(KernelError) as caught:
        model(on_device(X))
    assert caught.value.code == "EK0702" and "gpu:0: NULL_ERROR_700" in caught.value.notes
    driver.result = 0
    assert model(on_device(X))[0].shape == (2, 4)


def test_all_checks_work_without_a_look_into_its_memory() -> None:
    model = InferenceSession([Accelerator(0)], checks="all").load(scaled())
    assert model(on_device(X))[0].shape == (2, 4)


class Cheap:
    """Facts of a kernel that could be fused with any other."""

    elementwise, cost, loads, identity, loops = True, 1, (1, 1), (True, True), False


def cheap(_: Node) -> Any:
    return Cheap()


def test_kernels_of_two_devices_are_never_fused() -> None:
    kind = TensorType(DType.float32, ["n"], GPU)
    ir = Graph("chain", forward=lambda x: ops.exp(x) * x, input_types=[kind]).ir
    assert [(group.nodes, group.device) for group in partition(ir, cheap).groups] == [((0, 1), GPU)]
    nodes: list[Node | ConstantTensor] = []
    for number, node in enumerate(ir.nodes):
        assert isinstance(node, Node)
        there = TensorType(DType.float32, ["n"], DeviceRef.GPU(number))
        nodes.append(Node(node.kernel, node.parameters, node.operands, (there,), node.results))
    apart = GraphIR("apart", ir.inputs, tuple(nodes), ir.outputs)
    groups = partition(apart, cheap).groups
    assert [(group.nodes, group.device) for group in groups] == [((0,), GPU), ((1,), DeviceRef.GPU(1))]
    devices_of = {b.source[0]: b.device for b in make_plan(apart, partition(apart, cheap)).buffers}
    assert devices_of == {"input": GPU, "temp": GPU, "output": DeviceRef.GPU(1)}
