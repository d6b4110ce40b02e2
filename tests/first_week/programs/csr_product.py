"""A sparse matrix, as SciPy keeps it, times a vector."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, float64, foreach, int32, register


@register("csr_product")
def csr_product(
    y: OutputTensor[float64, "rows"],
    indptr: InputTensor[int32, "p"],
    indices: InputTensor[int32, "nnz"],
    data: InputTensor[float64, "nnz"],
    x: InputTensor[float64, "columns"],
):
    def row(i):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * x[indices[k]]
        return total

    foreach(y, row)


def main():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(30, 20)) * (rng.random((30, 20)) < 0.2)
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]).astype(np.int32)
    indices, x = np.nonzero(dense)[1].astype(np.int32), rng.normal(size=20)
    y = np.empty(30)
    csr_product(indptr, indices, dense[dense != 0], x, out=y)
    yield y, dense @ x
