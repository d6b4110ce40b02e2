"""Collectives between ranks that are threads: results against NumPy, and what is said when ranks do not agree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from einkorn.distributed import Mesh, Signals, rank, run_threads, size
from support import graphs

from einkorn.dsl.diagnostics.errors import EinkornError, GraphError, KernelError
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
    ops,
)

allreduce: Any = ops.allreduce
HERE = "test_collectives.py"
KINDS: dict[str, Callable[..., Any]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def loaded(forward: Callable[..., Any], *types: TensorType, **options: Any) -> Any:
    return InferenceSession(num_threads=1, **options).load(Graph("ranks", forward, types))


def f32(*shape: int | str) -> TensorType:
    return TensorType(DType.float32, shape, DeviceRef.CPU())


def numbers_of(number: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return graphs.numbers(shape, dtype, seed=number)


def in_order(arrays: list[Any], how: str) -> Any:
    """The reduction in the order of ranks; of half types in float32."""
    wide = arrays[0].dtype in graphs.HALVES and how == "sum"
    parts = [array.astype(np.float32) if wide else array for array in arrays]
    total = parts[0]
    for part in parts[1:]:
        total = KINDS[how](total, part)
    return total.astype(arrays[0].dtype)


@pytest.mark.parametrize("dtype", [*graphs.FLOATS, np.int8, np.uint64])
def test_reductions_go_in_the_order_of_ranks(dtype: Any) -> None:
    """Small ones are gathered whole, large ones reduced in pieces, with a rest: to the bit what NumPy has."""
    shapes = [(3,), (41, 37), (2, 3, 1001)]

    def program() -> list[Any]:
        group = Mesh({"model": 3})["model"]
        types = [TensorType(DType.from_numpy(np.dtype(dtype)), s, DeviceRef.CPU()) for s in shapes]

        def forward(*xs: Any) -> list[Any]:
            every = [getattr(ops.allreduce, how)(x, group) for x in xs for how in KINDS]
            return [*every, ops.reducescatter.sum(xs[2], group, axis=1)]

        return [each.to_numpy() for each in loaded(forward, *types)(*(numbers_of(rank(), s, dtype) for s in shapes))]

    results = run_threads(program, 3)
    everyone = [[numbers_of(k, s, dtype) for k in range(3)] for s in shapes]
    wanted = [in_order(arrays, how) for arrays in everyone for how in KINDS]
    for number, mine in enumerate(results):
        for one, other in zip(mine, wanted, strict=False):
            assert one.tobytes() == other.tobytes()
        assert mine[-1].tobytes() == in_order(everyone[2], "sum")[:, number : number + 1].tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_tensors_of_many_blocks_are_reduced_in_the_order_of_ranks(dtype: Any) -> None:
    """A block is 1 MiB of a tensor, and the last one is smaller; behind it is a rest without a piece for each rank."""
    count = 2 * 4 * 1024 * 1024 // np.dtype(dtype).itemsize + 1000

    def program() -> list[Any]:
        types = [TensorType(DType.from_numpy(np.dtype(dtype)), ["n"], DeviceRef.CPU())]
        model = loaded(
            lambda x: [ops.allreduce.sum(x, Mesh({"all": 3})), ops.allreduce.max(x, Mesh({"all": 3}))], *types
        )
        return [each.to_numpy() for each in model(numbers_of(rank(), (count,), dtype))]

    everyone = [numbers_of(k, (count,), dtype) for k in range(3)]
    for mine in run_threads(program, 3):
        for one, how in zip(mine, ("sum", "max"), strict=True):
            assert one.tobytes() == in_order(everyone, how).tobytes()


def test_means_are_rounded_once() -> None:
    def program() -> Any:
        x = TensorType(DType.bfloat16, [5], DeviceRef.CPU())
        model = loaded(lambda x: ops.allreduce.mean(x, Mesh({"all": 2})), x)
        return model(numbers_of(rank(), (5,), ml_dtypes.bfloat16))[0].to_numpy()

    wanted = (sum(numbers_of(k, (5,), ml_dtypes.bfloat16).astype(np.float32) for k in range(2)) / 2).astype(
        ml_dtypes.bfloat16
    )
    assert all(each.tobytes() == wanted.tobytes() for each in run_threads(program, 2))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("interpret", [False, True])
def test_movements_along_any_axis(axis: int, interpret: bool) -> None:
    def program() -> list[Any]:
        group = Mesh({"model": 2})["model"]

        def forward(x: Any) -> list[Any]:
            return [
                ops.allgather(x, group, axis),
                ops.alltoall(x, group, axis),
                ops.distributed_broadcast(x * 2, group, root=1),
                ops.collective_permute(x, group, [(0, 1)]),
                ops.reducescatter.max(x, group, axis),
            ]

        model = loaded(forward, f32("a", "b", "c"), interpret=interpret)
        return [each.to_numpy() for each in model(numbers_of(rank(), (2, 4, 6)))]

    a, b = (numbers_of(k, (2, 4, 6)) for k in range(2))
    halves = [np.split(x, 2, axis) for x in (a, b)]
    for number, (gathered, exchanged, sent, moved, largest) in enumerate(run_threads(program, 2)):
        assert np.array_equal(gathered, np.concatenate([a, b], axis))
        assert np.array_equal(exchanged, np.concatenate([halves[0][number], halves[1][number]], axis))
        assert np.array_equal(sent, b * 2)
        assert np.array_equal(moved, a if number == 1 else np.zeros_like(a))
        assert np.array_equal(largest, np.split(np.maximum(a, b), 2, axis)[number])


def test_meshes_have_groups_along_their_axes() -> None:
    def program() -> Any:
        mesh = Mesh({"data": 2, "model": 2})
        model = loaded(lambda x: [ops.allreduce.sum(x, mesh[axis]) for axis in mesh.axes], f32(1))
        sums = [int(each.to_numpy()[0]) for each in model(np.array([1 << rank()], np.float32))]
        return mesh.coordinates, mesh["data"].ranks, mesh["model"].ranks, sums

    found = run_threads(program, 4)
    assert [each[0] for each in found] == [{"data": d, "model": m} for d in range(2) for m in range(2)]
    assert [each[1] for each in found] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert [each[2] for each in found] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert [each[3] for each in found] == [[5, 3], [10, 3], [5, 12], [10, 12]]


def test_sends_and_receives_between_different_graphs() -> None:
    def program() -> Any:
        mesh = Mesh({"pipe": 2})
        if rank() == 0:
            model = loaded(lambda x: ops.send(x + 1, mesh, to=1) or x, f32(3))
            return model(np.zeros(3, np.float32))[0].to_numpy()
        model = loaded(lambda: ops.recv(f32(3), mesh, source=0) * 2)
        return model()[0].to_numpy()

    assert [each.tolist() for each in run_threads(program, 2)] == [[0, 0, 0], [2, 2, 2]]


def test_in_loops_and_branches_with_views_and_simulated_gpus() -> None:
    def program() -> Any:
        mesh = Mesh({"all": 2})

        def forward(x: Any) -> Any:
            total, _ = ops.while_loop((x, 0), lambda x, n: n < 3, lambda x, n: (allreduce.sum(x, mesh) * 0.5, n + 1))
            return ops.cond(total[0, 0] > -1, [total.type], lambda: ops.allreduce.max(total, mesh), lambda: total)[0]

        x = np.full((3, 4), rank() + 1, np.float32).T[:, ::2] if rank() else np.ones((4, 2), np.float32)
        on_host = loaded(forward, f32(4, 2))(x)[0].to_numpy()
        gpu = Accelerator("sim")
        ref = DeviceRef.from_device(gpu)
        graph = Graph("gpu", lambda x: allreduce.sum(x * 2, mesh) + 1, [TensorType(DType.float32, [4], ref)])
        there = InferenceSession([CPU(), gpu], num_threads=1).load(graph)
        return on_host, there(there_input(gpu))[0].to_numpy()

    def there_input(gpu: Any) -> Any:
        return Buffer.from_numpy(np.full(4, rank(), np.float32)).to(gpu)

    for host, device in run_threads(program, 2):
        assert np.all(host == 1.5) and np.all(device == 3)


def test_collectives_run_on_simulated_gpus() -> None:
    """Of views, small and in pieces with a rest, in a loop, between two ranks; with the bits of the host. The checks of
    the device find nothing."""

    def program(device: Any) -> list[Any]:
        mesh = Mesh({"all": 2})

        def forward(x: Any) -> list[Any]:
            turned = ops.permute(x, [1, 0])
            looped = ops.while_loop((x, 0), lambda x, n: n < 2, lambda x, n: (allreduce.sum(x, mesh) * 0.5, n + 1))[0]
            moved = [ops.alltoall(turned, mesh, 0), ops.allgather(x, mesh, 1), ops.reducescatter.sum(turned, mesh, 0)]
            ops.send(turned, mesh, 1 - rank())
            moved += [ops.recv(turned.type, mesh, 1 - rank()), ops.collective_permute(turned, mesh, [(0, 1)])]
            return [looped, allreduce.mean(turned, mesh), ops.distributed_broadcast(turned, mesh, root=1), *moved]

        type = TensorType(DType.bfloat16, ["a", "b"], DeviceRef.from_device(device))
        model = InferenceSession([device], num_threads=1).load(Graph("ranks", forward, [type]))
        shapes = [(3, 4), (77, 60)]
        inputs = [Buffer.from_numpy(numbers_of(rank(), shape, ml_dtypes.bfloat16)).to(device) for shape in shapes]
        return [each.to_numpy() for x in inputs for each in model(x)]

    on_host = run_threads(lambda: program(CPU()), 2)
    on_gpus = run_threads(lambda: program(Accelerator("sim", number=rank(), checks="all")), 2)
    for right, mine in zip(on_host, on_gpus, strict=True):
        assert [each.tobytes() for each in mine] == [each.tobytes() for each in right]


def test_tensors_of_hosts_and_of_gpus_do_not_mix() -> None:
    def program() -> None:
        mesh, device = Mesh({"all": 2}), Accelerator("sim") if rank() else CPU()
        type = TensorType(DType.float32, [3], DeviceRef.from_device(device))
        model = InferenceSession([device]).load(Graph("mixed", lambda x: allreduce.sum(x, mesh), [type]))
        model(Buffer.from_numpy(np.ones(3, np.float32)).to(device))

    with pytest.raises(KernelError, match="of tensors of GPUs") as caught:
        run_threads(program, 2)
    assert caught.value.code == "EK0861"


def test_a_layer_on_several_ranks_is_that_on_one() -> None:
    """Two products, the first by columns and the second by rows, with one allreduce: equal within the order of sums."""
    x, w1, w2 = (numbers_of(k, shape) for k, shape in enumerate([(5, 8), (8, 16), (16, 8)]))

    def program() -> Any:
        mesh = Mesh({"data": 1, "model": size()})

        def forward(x: Any, w1: Any, w2: Any) -> Any:
            columns, rows = ops.shard(w1, mesh, {"model": 1}), ops.shard(w2, mesh, {"model": 0, "data": 1})
            return allreduce.sum(ops.gelu(x @ columns) @ rows, mesh["model"])

        return loaded(forward, f32(5, 8), f32(8, 16), f32(16, 8))(x, w1, w2)[0].to_numpy()

    (whole,) = run_threads(program, 1)
    for ranks in (2, 4):
        for each in run_threads(program, ranks):
            assert np.allclose(each, whole, rtol=1e-5, atol=1e-5)


def test_a_rank_reads_only_its_part_of_a_mapped_file(tmp_path: Any) -> None:
    file = tmp_path / "w.npy"
    np.save(file, np.arange(32, dtype=np.float32).reshape(4, 8))

    def program() -> Any:
        mesh = Mesh({"model": 2})
        mine = mesh["model"].part(np.load(file, mmap_mode="r"), axis=0)
        assert isinstance(mine, np.memmap) and mine.shape == (2, 8)
        model = loaded(lambda x: ops.allgather(x, mesh["model"]), f32(2, 8))
        return model(mine)[0].to_numpy()

    assert all(np.array_equal(each, np.arange(32).reshape(4, 8)) for each in run_threads(program, 2))


# *** ranks that do not agree ***


def failing(program: Callable[[], Any], ranks: int = 2) -> KernelError:
    with pytest.raises(KernelError) as caught:
        run_threads(program, ranks)
    return caught.value


def test_other_programs_are_found_before_the_first_call() -> None:
    def program() -> Any:
        mesh = Mesh({"all": 2})
        if rank() == 0:
            model = loaded(lambda x: ops.allreduce.sum(x, mesh), f32(4))
        else:
            model = loaded(lambda x: ops.allgather(x, mesh), f32(4))
        return model(np.zeros(4, np.float32))

    error = failing(program)
    assert error.code == "EK0861" and "rank 0 runs graph ranks" in str(error) and "rank 1 runs graph" in str(error)
    assert str(error).count(HERE) >= 2


@pytest.mark.parametrize("what", ["size", "order"])
def test_other_calls_are_reported_with_both_places(what: str) -> None:
    def program() -> Any:
        mesh = Mesh({"all": 2})
        one = loaded(lambda x: ops.allreduce.sum(x, mesh), f32("n"))
        two = loaded(lambda x: ops.allreduce.max(x, mesh), f32("n"))
        for model in (one, two):
            model(np.zeros(4, np.float32))
        if what == "size":
            return one(np.zeros(4 + rank(), np.float32))
        return (one, two)[rank()](np.zeros(4, np.float32))

    error = failing(program)
    assert error.code == "EK0861" and "rank 0 calls allreduce.sum (float32, 4 elements" in str(error)
    expected = "allreduce.sum (float32, 5 elements" if what == "size" else "allreduce.max (float32, 4 elements"
    assert f"rank 1 calls {expected}" in str(error) and str(error).count(HERE) >= 3


def test_a_failure_ends_all_ranks_with_its_message() -> None:
    waited = threading.Event()

    def program() -> Any:
        mesh = Mesh({"all": 3})
        model = loaded(lambda x: ops.allreduce.sum(x, mesh), f32(4))
        model(np.zeros(4, np.float32))
        if rank() == 1:
            raise ValueError("no data for rank 1")
        try:
            model(np.zeros(4, np.float32))
        except KernelError as error:
            assert error.code == "EK0863" and "rank 1 has failed: no data for rank 1" in str(error)
            waited.set()
            raise

    with pytest.raises(ValueError, match="no data for rank 1") as caught:
        run_threads(program, 3)
    assert waited.is_set() and "rank 1 of 3 raised this" in caught.value.__notes__


def test_a_rank_that_has_ended_is_named() -> None:
    def program() -> Any:
        mesh = Mesh({"all": 2})
        model = loaded(lambda x: ops.allreduce.sum(x, mesh), f32(4))
        if rank() == 0:
            model(np.zeros(4, np.float32))

    error = failing(program)
    assert error.code == "EK0863" and "rank 1 has ended" in str(error)


def test_time_outs_name_the_op_and_the_missing_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EINKORN_COLLECTIVE_TIMEOUT", "0.2")
    over = threading.Event()

    def program() -> Any:
        mesh = Mesh({"all": 3})
        model = loaded(lambda x: ops.allreduce.sum(x, mesh), f32(4))
        model(np.zeros(4, np.float32))
        if rank() == 2:
            over.wait(60)
        try:
            model(np.zeros(4, np.float32))
        finally:
            over.set()

    error = failing(program, 3)
    assert error.code == "EK0862" and "waited 0.2 s in allreduce.sum" in str(error)
    assert "rank 2 did not come" in str(error) and error.place is not None and error.place.file.endswith(HERE)


# *** what is refused when a graph is built ***


def test_meshes_want_their_number_of_ranks() -> None:
    assert (rank(), size()) == (0, 1)
    for axes in ({"model": 2}, {}, {"a b": 1}, {"model": 0}, [("model", 1)]):
        with pytest.raises(GraphError) as caught:
            Mesh(axes)  # type: ignore[arg-type]
        assert caught.value.code == "EK0860"
    with pytest.raises(GraphError, match="did you mean"):
        Mesh({"model": 1})["modle"]


def test_calls_that_cannot_be() -> None:
    def program() -> None:
        mesh = Mesh({"all": 2})
        wrong: list[Callable[[Any], Any]] = [
            lambda x: ops.reducescatter.sum(x, mesh, axis=0),
            lambda x: ops.alltoall(x, mesh),
            lambda x: ops.allreduce.sum([x, x], mesh),
            lambda x: ops.allreduce.sum(x, [x]),
            lambda x: ops.allreduce.sum(x, "model"),  # type: ignore[arg-type]
            lambda x: ops.distributed_broadcast(x, mesh, root=2),
            lambda x: ops.collective_permute(x, mesh, [(0, 1), (0, 0)]),
            lambda x: ops.barrier("all") or x,  # type: ignore[arg-type]
            lambda x: ops.allgather(ops.cast(x, DType.int4), mesh),
        ]
        for forward in wrong:
            with pytest.raises(EinkornError) as caught:
                Graph("wrong", forward, [f32(3)])
            error = caught.value
            assert error.code == "EK0865" and error.place is not None and error.place.file.endswith(HERE), error
        model = loaded(lambda x: ops.reducescatter.sum(x, mesh), f32("n"))
        with pytest.raises(EinkornError, match="EK0865"):
            model(np.zeros(3, np.float32))

    run_threads(program, 2)


def test_not_in_exported_code(tmp_path: Any) -> None:
    model = loaded(lambda x: ops.allreduce.sum(x, Mesh({"all": 1})), f32(3))
    with pytest.raises(GraphError, match="EK0866"):
        model.export(tmp_path / "model.so")


# *** devices of one process ***


def test_the_documented_form_takes_a_tensor_and_a_buffer_for_each_device() -> None:
    gpu = Accelerator("sim")
    devices = [DeviceRef.CPU(), DeviceRef.from_device(gpu)]
    signals = Signals([CPU(), gpu])
    assert signals.input_types() == [BufferType(DType.uint8, [1], device) for device in devices]

    def forward(x: Any, y: Any, *buffers: Any) -> list[Any]:
        each: list[Any] = [
            *ops.allreduce.sum([x, y], buffers),
            *ops.allreduce.max([x, y], buffers),
            *ops.allgather([x, y], buffers, axis=1),
            *ops.reducescatter.sum([x, y], buffers, axis=0),
            *ops.alltoall([x, y], buffers),
            *ops.distributed_broadcast(x, buffers),
            *ops.shard_and_stack([x, x * 2], devices, axis=1),
        ]
        assert [value.device for value in each] == devices * 7
        return each

    types = [TensorType(DType.float32, [4, 6], device) for device in devices]
    model = InferenceSession([CPU(), gpu]).load(Graph("devices", forward, [*types, *signals.input_types()]))
    a, b = (numbers_of(k, (4, 6)) for k in range(2))
    found = [each.to_numpy() for each in model(a, Buffer.from_numpy(b).to(gpu), *signals.buffers())]
    wanted = [
        *[a + b] * 2,
        *[np.maximum(a, b)] * 2,
        *[np.concatenate([a, b], 1)] * 2,
        *np.split(a + b, 2),
        np.concatenate([a[:2], b[:2]]),
        np.concatenate([a[2:], b[2:]]),
        *[a] * 2,
        *(np.stack([half, half * 2]) for half in np.split(a, 2, 1)),
    ]
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one, other)
