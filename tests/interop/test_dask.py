"""Kernels on blocks of Dask's arrays and on arrays of xarray: in threads, processes, and clusters of processes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import DTypeError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

from .dask_kernels import outer, rise, swish

pytestmark = pytest.mark.skipif(find_spec("dask") is None, reason="needs dask: make callers")

SCHEDULERS = ("synchronous", "threads", "processes")


def numbers(*shape: int, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("chunks", [(3, 2), (7, 5), ((1, 6), (5,))])
def test_blocks_have_the_bits_of_the_whole(dtype: Any, chunks: Any) -> None:
    import dask.array as da

    array = numbers(7, 5, dtype=dtype)
    blocks = da.from_array(array, chunks=chunks)
    for made in (blocks.map_blocks(swish, beta=2.0), blocks.map_blocks(swish, beta=2.0, dtype=dtype)):
        assert made.dtype == dtype
        assert made.compute().tobytes() == swish(array, beta=2.0).tobytes()
    turned = blocks.T.map_blocks(swish, dtype=dtype).compute()
    assert np.array_equal(turned, swish(array).T)


def test_arrays_without_elements() -> None:
    import dask.array as da

    assert da.ones((0, 4), chunks=(2, 2)).map_blocks(swish).compute().shape == (0, 4)


@pytest.mark.parametrize("chunks", [2, 3, (4, 3)])
def test_several_arrays_and_neighbours(chunks: Any) -> None:
    import dask.array as da

    array = numbers(8, 9)
    x, y = da.from_array(array[:, 0], chunks=3), da.from_array(array[0], chunks=4)
    assert np.array_equal(
        da.blockwise(outer, "ij", x, "i", y, "j", dtype=x.dtype).compute(), outer(array[:, 0], array[0])
    )
    blocks = da.from_array(array, chunks=chunks)
    assert np.array_equal(blocks.map_overlap(rise, depth=1, boundary="none", dtype=array.dtype).compute(), rise(array))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_errors_name_the_argument_wherever_a_block_is_computed(scheduler: str) -> None:
    import dask.array as da

    blocks = da.ones((4, 4), chunks=2, dtype=np.int64)
    with pytest.raises(DTypeError) as caught:
        blocks.map_blocks(swish, dtype=float).compute(scheduler=scheduler, num_workers=2)
    assert caught.value.code == "EK0316" and caught.value.argument == "x"
    assert "dask_kernels.py" in str(caught.value.notes)


def test_an_array_of_dask_is_not_an_argument() -> None:
    import dask.array as da

    with pytest.raises(DTypeError, match="argument 'x' is not a tensor"):
        swish(da.ones((4, 4), chunks=2))


def test_keys_of_tasks_differ_by_kernel() -> None:
    from dask.base import tokenize

    assert tokenize(swish) == tokenize(swish) != tokenize(outer)


@pytest.mark.skipif(find_spec("xarray") is None, reason="needs xarray: make callers")
@pytest.mark.parametrize("chunks", [None, {"time": 3}])
def test_arrays_of_xarray(chunks: Any) -> None:
    import xarray as xr

    array = numbers(7, 5)
    field = xr.DataArray(array, dims=("time", "place"))
    given = field if chunks is None else field.chunk(chunks)
    how: dict[str, Any] = {} if chunks is None else {"dask": "parallelized", "output_dtypes": [array.dtype]}
    result = xr.apply_ufunc(swish, given, kwargs={"beta": 2.0}, **how)
    assert result.dims == field.dims
    assert np.array_equal(result, swish(array, beta=2.0))
    core: dict[str, Any] = {"input_core_dims": [["time"], ["place"]], "output_core_dims": [["time", "place"]]}
    made = xr.apply_ufunc(outer, field[:, 0], field[0], **core)
    assert np.array_equal(made, outer(array[:, 0], array[0]))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_compiled_kernels_are_sent(scheduler: str) -> None:
    import dask.array as da

    array = numbers(6, 4)
    blocks = da.from_array(array, chunks=(3, 4)).map_blocks(swish.compile(array), dtype=array.dtype)
    assert np.array_equal(blocks.compute(scheduler=scheduler, num_workers=2), swish(array))


def applied(model: Any, block: Any) -> Any:
    return model(np.array(block))[0].to_numpy()


@pytest.mark.skipif(find_spec("distributed") is None, reason="needs distributed: make callers")
def test_a_cluster_of_processes_compiles_a_kernel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both workers compute; what the first has compiled the second takes from the cache of the machine."""
    import dask.array as da
    from dask.distributed import Client, LocalCluster

    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path))
    array = numbers(8, 4)
    types = [TensorType(DType.float64, ["n", "m"], DeviceRef.CPU())]
    model = InferenceSession(num_threads=1).load(Graph("norms", lambda x: ops.sum(x * x, -1), types))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        first, second = client.scheduler_info()["workers"]
        results, files = [], []
        for worker in (first, second):
            results.append(client.submit(swish, array, workers=[worker], pure=False).result())
            files.append(sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()))
        blocks = da.from_array(array, chunks=(1, 4)).map_blocks(swish, dtype=array.dtype)
        whole = client.compute(blocks).result()
        sent = client.scatter(model, broadcast=True)
        sums = [client.submit(applied, sent, array, workers=[worker]).result() for worker in (first, second)]
    assert all(each.tobytes() == swish(array).tobytes() for each in (*results, whole))
    assert files[0] == files[1] and any(path.suffix for path in files[0])
    for each in sums:
        np.testing.assert_allclose(each[:, 0], (array * array).sum(-1))
