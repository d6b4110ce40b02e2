"""Cases of sums over named axes, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.graphs import widely
from support.op_cases import T, case, plain_numbers

from einkorn.graph import ops

SIZES = [{"i": 3, "j": 4, "k": 5}, {"i": 1, "j": 1, "k": 1}, {"i": 0, "j": 2, "k": 3}, {"i": 3, "j": 0, "k": 2}]


def sums(equation: str, *dims: tuple[int | str, ...], dtypes: Any = (np.float64,)) -> Any:
    """A case with a tensor for each of these shapes."""
    tensors = {"xyzw"[k]: T(*each, make=plain_numbers, of=f"operands[{k}]") for k, each in enumerate(dims)}
    reference = widely(lambda *arrays: np.einsum(equation, *arrays))
    return case("einsum", reference, call=lambda *values: ops.einsum(equation, *values), sizes=SIZES,
                dtypes=dtypes, **tensors)  # fmt: skip


ALL = (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8)
CASES = [
    sums("ij,jk->ik", ("i", "j"), ("j", "k"), dtypes=ALL),
    sums("ij,jk", ("i", "j"), ("j", "k")),
    sums("ba,ca", ("i", "j"), ("k", "j")),
    sums("i->", ("i",)),
    sums("ij->ji", ("i", "j")),
    sums("ii", (3, 3)),
    sums("ii->i", (3, 3)),
    sums("jiij->ij", ("j", "i", "i", "j")),
    sums("i,j->ij", ("i",), ("j",)),
    sums("i,i", ("i",), ("i",)),
    sums("ij,ij->i", ("i", "j"), ("i", "j")),
    sums("bij,bjk->bik", (2, "i", "j"), (2, "j", "k")),
    sums("bhqd,bkhd->bhqk", (2, "i", "j", 4), (2, "k", "i", 4)),
    sums("...ij,...jk->...ik", (2, "i", "j"), ("j", "k")),
    sums("...ij,...jk", (2, 1, "i", "j"), (3, "j", "k")),
    sums("i...->...", ("i", "j", "k")),
    sums("ij,jk,kl->il", ("i", "j"), ("j", "k"), ("k", 2)),
    sums("ij,ik,il->jkl", ("i", "j"), ("i", 2), ("i", "k")),
    sums("ijk,j->k", ("i", "j", "k"), (1,)),
    sums("a b , b -> a", ("i", "j"), ("j",)),
    sums("ab,cd->", ("i", "j"), ("k", 2)),
]
