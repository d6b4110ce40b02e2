"""What the runtime requests of a driver's library, call by call; these need a library that notes it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.compiler.codegen.llvm import compile_module
from einkorn.compiler.targets import host
from einkorn.dsl.contract import abi
from einkorn.dsl.diagnostics.errors import DeviceError, EinkornError, KernelError, ReplayError
from einkorn.graph import (
    CPU,
    Accelerator,
    Buffer,
    DeviceRef,
    DeviceStream,
    DType,
    Graph,
    InferenceSession,
    TensorType,
    ops,
)
from einkorn.graph.driver.shared_library import SharedLibrary

GPU = DeviceRef.GPU()
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)


def network(name: str = "network", device: DeviceRef = GPU) -> Graph:
    def forward(x: Any) -> Any:
        y = ops.softmax(x * 2.0 + 1.0)
        return y, x + y

    return Graph(name, forward=forward, input_types=[TensorType(DType.float32, ["m", 3], device)])


def check_a_call_is_its_launches(gpu: Accelerator, fake: Any) -> None:
    model = InferenceSession([gpu]).load(network())
    x = Buffer.from_numpy(X).to(GPU)
    model(x)
    fake.log.clear()
    first, second = model(x)
    launches = fake.calls("launch")
    assert fake.log == launches and len(launches) == 2  # nothing is waited for, copied or requested
    stream = gpu.default_stream.handle
    assert all(line[6] == stream and line[2] == (1, 1, 1) and line[4] == (1, 1, 1) for line in launches)
    if fake.has_arguments:
        assert x.address in launches[0][7] and first.address in launches[0][7] and second.address in launches[1][7]
    assert model(Buffer.from_numpy(X[:0]).to(GPU))[0].shape == (0, 3)
    assert len(fake.calls("launch")) == 2  # empty grids launch nothing


def check_calls_go_to_the_stream_of_the_thread(gpu: Accelerator, fake: Any) -> None:
    model = InferenceSession([gpu]).load(network())
    x = Buffer.from_numpy(X).to(GPU)
    y = model(x)[0]
    stream = DeviceStream(gpu)
    fake.log.clear()
    with stream:
        model(y)
    assert [line[0] for line in fake.log[:2]] == ["record", "wait for event"]
    assert fake.log[0][1] == gpu.default_stream.handle and fake.log[1][1] == stream.handle
    assert {line[6] for line in fake.calls("launch")} == {stream.handle}


def check_code_is_loaded_once(gpu: Accelerator, fake: Any) -> None:
    session = InferenceSession([gpu])
    model = session.load(network("once"))
    loads = len(fake.calls("load"))
    model.clone()
    session.load(network("once"))
    assert len(fake.calls("load")) == loads <= 1


def check_captures_replay_as_one_call(gpu: Accelerator, fake: Any) -> None:
    model = InferenceSession([gpu]).load(network())
    x = Buffer.from_numpy(X).to(GPU)
    outputs = model.capture(7, x)
    fake.log.clear()
    model.replay(7, x)
    assert fake.log == [("replay", 2, gpu.default_stream.handle)]
    with pytest.raises(ReplayError, match="is not the memory that was captured"):
        model.replay(7, Buffer.from_numpy(X).to(GPU))
    with DeviceStream(gpu) as stream:
        fake.log.clear()
        model.replay(7, x)
    assert fake.log[-1] == ("replay", 2, stream.handle) and fake.calls("wait for event")
    assert len(outputs) == 2


def check_memory_that_is_short_names_its_largest_user(gpu: Accelerator, fake: Any) -> None:
    kept = [Buffer.zeros((1 << 20,), DType.float32, GPU) for _ in range(3)]
    dropped = Buffer.zeros((4 << 20,), DType.float32, GPU)
    fake.maximum, maximum = 30 << 20, fake.maximum
    try:
        with pytest.raises(DeviceError) as caught:
            Buffer.zeros((1 << 24,), DType.float32, GPU)
        assert caught.value.code == "EK0833" and "67108864 bytes" in caught.value.message
        free, user = caught.value.notes
        assert free.endswith("bytes are free")
        assert user == "the largest user is buffers of float32 (4194304,): 16,777,216 bytes in 1 block"
        del dropped
        gc.collect()
        assert Buffer.zeros((7 << 19,), DType.float32, GPU).num_elements == 7 << 19  # what is unused is given back
        model = InferenceSession([gpu]).load(network("large"))
        x = Buffer.zeros((1 << 20, 3), DType.float32, GPU)
        with pytest.raises(DeviceError) as caught:
            model(x)
        assert caught.value.code == "EK0833" and "an output of float32 (1048576, 3)" in caught.value.message
    finally:
        fake.maximum = maximum
    assert len(kept) == 3


def check_memory_of_another_stream_is_taken_behind_its_work(gpu: Accelerator, fake: Any) -> None:
    gpu.driver.pool.trim()  # type: ignore[attr-defined]
    buffer = Buffer.zeros((1 << 20,), DType.float32, GPU)
    del buffer
    gc.collect()
    used = sum(size for size, device, _ in fake.blocks.values() if device == 0)
    fake.maximum, maximum = used, fake.maximum
    try:
        with DeviceStream(gpu) as stream:
            fake.log.clear()
            Buffer(DType.float32, (1 << 20,), GPU)
        assert fake.log == [("record", gpu.default_stream.handle), ("wait for event", stream.handle)]
    finally:
        fake.maximum = maximum


def check_a_second_device_has_memory_of_its_own(gpu: Accelerator, fake: Any) -> None:
    other = Accelerator(1)
    there = Buffer.from_numpy(X).to(GPU).to(other)
    assert there.device == other and other != gpu
    assert gpu.can_access(other) and gpu.can_access(gpu) and not gpu.can_access(CPU())
    np.testing.assert_array_equal(there.to_numpy(), X)
    assert fake.blocks[there.address][1] == 1
    model = InferenceSession([gpu, other]).load(network())
    with pytest.raises(EinkornError) as caught:
        model(there)
    assert caught.value.code == "EK0430"
    second = InferenceSession([gpu, other]).load(network(device=DeviceRef.GPU(1)))
    for _ in range(2):  # each launch finds its device, whichever the thread used last
        model(Buffer.from_numpy(X).to(GPU))
        (result, _) = second(there)
    assert result.device == other and len(fake.calls("launch")) == 8


def check_memory_goes_between_devices_directly(gpu: Accelerator, fake: Any) -> None:
    """In the order of both devices' streams, and without a wait of the host."""
    other = Accelerator(1)
    source = Buffer.from_numpy(X).to(gpu)
    fake.log.clear()
    there = source.to(other)
    assert fake.calls("copy") == [("copy", "peer", X.nbytes, other.default_stream.handle)]
    assert fake.calls("wait for stream", "wait for device") == [] and fake.peers == {(1, 0)}
    source.inplace_copy_from(Buffer.from_numpy(X + 1))  # comes behind the copy
    np.testing.assert_array_equal(there.to_numpy(), X)
    with DeviceStream(gpu):
        source = source.copy()
        there.inplace_copy_from(source)
        del source  # its memory is taken again behind the copy
        gc.collect()
        Buffer.zeros(X.shape, DType.float32, gpu)
    np.testing.assert_array_equal(there.to_numpy(), X + 1)
    with DeviceStream(other):
        back = there.to(gpu)
    np.testing.assert_array_equal(back.to_numpy(), X + 1)
    assert Buffer.from_numpy(X[:0]).to(gpu).to(other).to_numpy().shape == (0, 3)
    assert fake.peers == {(1, 0), (0, 1)}


def check_other_numbers_are_reported_by_name(gpu: Accelerator, fake: Any) -> None:
    with pytest.raises(DeviceError) as caught:
        DeviceStream(gpu, 0xBAD).synchronize()
    assert caught.value.code == "EK0837" and "INVALID" in caught.value.message.upper()
    assert fake.violations == ["0xbad is not a stream"]
    fake.violations.clear()


def ptx_of(version: str) -> bytes:
    return f".version {version}\n.target sm_80\n.address_size 64\n".encode()


def check_code_that_the_driver_does_not_take(gpu: Accelerator, fake: Any) -> None:
    driver: Any = type(gpu.driver)(0)
    text = fake.has_arguments  # whether its code is a text with a version
    with pytest.raises(DeviceError) as caught:
        fake.load_status, fake.load_log = 209, b"ptxas: no such architecture"
        driver.module(ptx_of("7.0"), text, "sm_90a")
    assert caught.value.code == "EK0835" and caught.value.expected == gpu.architecture_name
    assert caught.value.message == f"code for sm_90a does not run on gpu:0, which is {gpu.architecture_name}"
    assert not text or "ptxas: no such architecture" in caught.value.notes
    if text:
        with pytest.raises(DeviceError) as caught:
            fake.load_status = 222
            driver.module(ptx_of("7.1"), text, "sm_80")
        assert caught.value.code == "EK0832" and "supports CUDA 13.0" in caught.value.message
        fake.version, version = 11020, fake.version
        with pytest.raises(DeviceError) as caught:
            type(gpu.driver)(0).module(ptx_of("7.8"), True, "sm_90")
        assert caught.value.code == "EK0832"
        assert "it supports PTX 7.2, and the code is PTX 7.8" in caught.value.message
        fake.version = version
    fake.load_status = 0


def check_shared_memory_beyond_the_usual_is_requested(gpu: Accelerator, fake: Any) -> None:
    """A launch as generated code makes it: the table's functions, with a structure on the stack."""
    model = InferenceSession([gpu]).load(network())
    model(Buffer.from_numpy(X).to(GPU))
    table = model.first_caller.native.table
    assert table is not None
    launch = abi.Launch(0, (2, 1, 1), (256, 1, 1), (2, 1, 1) if fake.has_arguments else (1, 1, 1), 50_000, 0)
    slots = [ctypes.c_uint64(value) for value in (3, 0, 0, 0)]
    arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(slot) for slot in slots))
    fake.runner, before = None, fake.runner
    fake.log.clear()
    assert abi.LaunchFunction(table.launch)(ctypes.addressof(table), launch, ctypes.addressof(arguments)) == 0
    assert fake.log[0][2:6] == ((2, 1, 1), (256, 1, 1), tuple(launch.cluster), 50_000)
    gpu.synchronize()
    fake.runner = before


def check_shared_memory_is_requested_when_code_is_loaded(gpu: Accelerator, fake: Any) -> None:
    """Threads share the attributes of a kernel: none is set at a launch."""
    if not fake.has_arguments:
        return  # AMD's GPUs have no such attribute
    model: Any = InferenceSession([gpu]).load(network("limits"))
    functions = model.first_caller.code.launching.functions
    assert len(functions) == 2
    for function in functions:
        assert fake.attributes[function] == {8: fake.attribute(97) - fake.function_attribute(1, function)}
    model(Buffer.from_numpy(X).to(GPU))
    model(Buffer.from_numpy(X).to(GPU))
    assert fake.launched >= set(functions) and fake.violations == []


def check_functions_are_those_of_the_version_that_is_coded_against(gpu: Accelerator, fake: Any) -> None:
    if not fake.has_arguments:
        return  # HIP's have no versions
    for name in gpu.driver.library.functions:  # type: ignore[attr-defined]
        gpu.driver.library.address_of(name)  # type: ignore[attr-defined]
        assert fake.resolved[-1] == (name, 12000) and fake.version == 13000


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def check_fills_and_copies_of_the_table(width: int, gpu: Accelerator, fake: Any) -> None:
    model: Any = InferenceSession([gpu]).load(network())
    table = model.first_caller.native.table
    buffer, device = Buffer(DType.uint8, (8 * width,), GPU), ctypes.addressof(table)
    pattern = 0x0807060508070605
    assert abi.FillFunction(table.fill)(device, buffer.address + width, pattern, 6, width) == 0
    content = np.empty(6 * width, np.uint8)
    copied = abi.CopyFunction(table.copy)(device, content.ctypes.data, buffer.address + width, 6 * width, abi.TO_HOST)
    assert copied == 0 and content.tobytes() == pattern.to_bytes(8, "little")[:width] * 6
    other = Buffer.zeros((8,), DType.uint8, GPU)
    assert abi.CopyFunction(table.copy)(device, other.address, buffer.address + width, width, abi.WITHIN) == 0
    assert other.to_numpy()[0] == 5


@pytest.mark.parametrize("elsewhere", [1, None])
def check_the_thread_keeps_its_device(elsewhere: int | None, gpu: Accelerator, fake: Any) -> None:
    """Another library chose that device: what is done on this one leaves it the thread's, also after an error."""
    if elsewhere is None and fake.first_device is not None:
        return  # a thread of HIP's always has one
    model: Any = InferenceSession([gpu]).load(network())
    table, before = model.first_caller.native.table, fake.threads.device
    fake.threads.device = elsewhere

    def keeps(action: Any) -> Any:
        result = action()
        assert fake.threads.device == elsewhere
        return result

    try:
        x = keeps(lambda: Buffer.from_numpy(X).to(GPU))
        y = keeps(lambda: model(x))[0]
        keeps(lambda: Buffer.zeros((3 << 20,), DType.float32, GPU))
        keeps(lambda: model.capture(3, x))
        keeps(lambda: model.replay(3, x))
        keeps(lambda: DeviceStream(gpu).wait_for(gpu))
        keeps(lambda: y.to_numpy())
        keeps(lambda: gpu.synchronize())
        keeps(lambda: gpu.stats)
        keeps(lambda: InferenceSession([gpu]).load(network("another")))
        keeps(lambda: abi.FillFunction(table.fill)(ctypes.addressof(table), 0, 0, 1, 1))  # no memory: it is refused
        keeps(lambda: Buffer(DType.float32, (4, 3), gpu, pinned=True))
        with pytest.raises(DeviceError):
            DeviceStream(gpu, 0xBAD).synchronize()
        assert fake.threads.device == elsewhere
        fake.violations.clear()
    finally:
        fake.threads.device = before


def check_an_endless_kernel_is_interrupted(gpu: Accelerator, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    y = InferenceSession([gpu]).load(network())(Buffer.from_numpy(X).to(GPU))[0]
    pinned = Buffer(DType.float32, (4, 3), gpu, pinned=True)
    large = np.zeros(1 << 16, np.float32)
    waits = (gpu.synchronize, gpu.default_stream.synchronize, y.to_numpy, lambda: pinned.inplace_copy_from(y))
    with monkeypatch.context() as patch:
        patch.setattr(gpu.driver.library, "is_idle", lambda stream: False)  # type: ignore[attr-defined]
        for wait in (*waits, lambda: Buffer.from_numpy(large).to(GPU)):
            with pytest.raises(KeyboardInterrupt):
                interrupted(wait)
    with gpu.driver:  # type: ignore[attr-defined]
        theirs = fake.create_stream()
    with DeviceStream(gpu, theirs), monkeypatch.context() as patch:
        patch.setattr(gpu.driver.library, "is_idle", lambda stream: stream != theirs)  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            interrupted(gpu.synchronize)
    np.testing.assert_array_equal(y.to_numpy() * 0 + 1, np.ones((4, 3)))


def interrupted(wait: Any) -> None:
    """Calls this, and presses Ctrl-C when it has waited for a while."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        wait()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


NEVER = """
define i32 @never(ptr %stream) {
  ret i32 600
}
"""


def check_native_waits_are_interrupted(gpu: Accelerator, fake: Any, tmp_path: Path) -> None:
    """A branch reads its condition, which an endless kernel computes: native code waits for it."""

    def forward(x: Any) -> Any:
        return ops.cond(x[0, 0] > 0.0, [x.type], lambda: x + 1.0, lambda: x - 1.0)

    types = [TensorType(DType.float32, (4, 3), GPU)]
    model: Any = InferenceSession([gpu]).load(Graph("branch", forward=forward, input_types=types))
    x = Buffer.from_numpy(X).to(GPU)
    (tmp_path / "never.so").write_bytes(compile_module(NEVER, host(), level=2).link("never.so"))
    library = SharedLibrary(tmp_path / "never.so")
    model(x)
    functions: Any = gpu.driver._library_table  # type: ignore[attr-defined]
    at = gpu.driver.library.functions.index("cuStreamQuery" if gpu.api == "cuda" else "hipStreamQuery")  # type: ignore[attr-defined]
    before, functions[at] = functions[at], library.address("never")
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(lambda: model(x))
    finally:
        functions[at] = before
    result = model(x)[0].to_numpy()
    if fake.runner is not None:
        np.testing.assert_array_equal(result, X - 1)


def check_memory_that_others_read_while_they_record_is_put_aside(gpu: Accelerator, fake: Any) -> None:
    """Another library captures its stream when it drops our memory: no event of Einkorn gets into its capture."""
    theirs = gpu.driver.create_stream()
    buffer = Buffer.from_numpy(np.arange(777, dtype=np.float64)).to(GPU)
    address, shape = buffer.address, buffer.shape
    capsule = buffer.__dlpack__(stream=theirs)
    with fake.lock:
        fake.begin_capture(theirs)
    fake.log.clear()
    del capsule, buffer
    gc.collect()
    assert fake.log == []
    other = Buffer(DType.float64, shape, GPU)
    assert other.address != address and fake.calls("record") == []
    fake.destroy_graph(fake.end_capture(theirs))
    again = [Buffer(DType.float64, shape, GPU) for _ in range(2)]
    assert fake.calls("record", "wait for event") == [("record", theirs), ("wait for event", gpu.default_stream.handle)]
    assert address in {each.address for each in again}
    gpu.driver.destroy_stream(theirs)


def check_a_kernel_that_fails_loses_the_context(gpu: Accelerator, fake: Any) -> None:
    """The last of this file: nothing works behind it."""
    model = InferenceSession([gpu]).load(network("broken"))
    x = Buffer.from_numpy(X).to(GPU)
    result = model(x)[0]

    def fail(*_: Any) -> None:
        fake.fault = fake.status["fault"]

    fake.runner, before = fail, fake.runner
    result = model(x)[0]
    with pytest.raises(KernelError) as caught:
        result.to_numpy()
    assert caught.value.code == "EK0834" and "illegaladdress" in caught.value.message.lower().replace("_", "")
    assert caught.value.notes[0].endswith("broken") and "context is lost" in caught.value.notes[1]
    with pytest.raises(KernelError) as caught:
        model(x)
    assert caught.value.code == "EK0834" and "of op 'softmax'" in caught.value.notes[0]
    assert any("the op is staged at" in note for note in caught.value.notes)
    fake.runner = before
