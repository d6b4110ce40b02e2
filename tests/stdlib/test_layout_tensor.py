"""Views of tensors: what is refused and where, and the table of names that documentation of such tensors has.

What views compute is in `tests/support/gpu_cases_views.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from support import harness

from einkorn import stdlib
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language" / "views.md"
ROW = re.compile(r"^\| ([^|]+) \| `(\w+)` \| (here|another name|left out) \| ([^|]*) \|$", re.MULTILINE)
HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float16, float32, gpu, register
from einkorn.stdlib import *

def views(out, x):
    i = gpu.thread_idx.x
    t, to = LayoutTensor(x), LayoutTensor(out)
    s = LayoutTensor.stack_allocation(float32, (16, 16), "shared")
    own = LayoutTensor.stack_allocation(float32, (4, 4))
{}

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(views, out, x, grid=1, block=64)
"""
FIRST = 10  # the line at which a test's text begins
TYPES = [(DType.float32, (40, 40))]

REFUSED = {
    "a space": ('LayoutTensor.stack_allocation(float32, 8, "global")', "EK0215", "'local' or 'shared'"),
    "axes of a tile": ("s.tile(0, (4, 4))", "EK0215", "1 coordinates and 2 sizes"),
    "threads": ("s.distribute((8, 3), i)", "EK0215", "16 elements along axis 1 for 3 threads"),
    "axes of threads": ("s.distribute(64, i)", "EK0215", "threads along 1 axes for a view of 2"),
    "a vector": ("s.vectorize(1, 3)", "EK0215", "16 elements along axis 1 are no vectors of 3"),
    "a vector of a column": ("s.vectorize(4, 1)", "EK0215", "not as axis 0"),
    "a copy": ("own.copy_from(s)", "EK0215", "(16, 16) elements to one of (4, 4)"),
    "widths": ("s.copy_from(s.vectorize(1, 4))", "EK0215", "vectors of 4 to vectors of 1"),
    "many threads": ("copy_dram_to_sram(s, t.tile(0, 0, (16, 16)), (16, 8))", "EK0215", "128 threads in a block of 64"),
    "many threads at once": (
        "copy_dram_to_sram_async(s, t.tile(0, 0, (16, 16)), (16, 8))",
        "EK0215",
        "128 threads in a block of 64",
    ),
    "bytes": (
        "copy_dram_to_sram_async(s.vectorize(1, 8), t.tile(0, 0, (16, 16)).vectorize(1, 8), (16, 2))",
        "EK0646",
        "",
    ),
    "a reshape": ("s.reshape((16, 8))", "EK0215", "another number of elements than 256"),
    "a ragged reshape": ("t.tile(0, 0, (16, 16)).flatten()", "EK0215", "keeps its shape"),
    "parts": ("s.split(3, 0, 1)", "EK0215", "16 elements are not 3 equal parts"),
    "an axis": ("t.tiled_iterator(0, 0, (8, 8), axis=2)", "EK0215", "no axis 2"),
    "an index": ("own.fill(s[3])", "EK0215", "1 coordinates"),
    "an input": ("t.fill(1)", "EK0211", "is an input"),
    "a product": ("outer_product_acc(own, s.row(0), s.row(1))", "EK0215", "sums of (4, 4) for (16,) by (16,)"),
    "a factor": ("own[0, 0] = 1\nTensorCore(float32, float16, (16, 8, 16)).load_a(s)", "EK0215", "not float16"),
    "a shape": ("TensorCore(float32, float32, (32, 8, 16)).load_a(s)", "EK0215", "a view of (32, 16), not of (16, 16)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    text, code, words = REFUSED[name]
    lines = text.split("\n")
    path = tmp_path / "kernel.py"
    path.write_text(HEAD.format("\n".join(f"    {line}" for line in lines)))
    spec = harness.entry_of(path, "op", TYPES, {}, TYPES)[0]
    with pytest.raises(EinkornError) as refused:
        typed_program(spec, lookup("sm_90a"))
    error = refused.value
    line = error.place.line if error.place else 0
    assert (error.code, line) == (code, FIRST + len(lines) - 1) and words in str(error), str(error)


def test_the_table_of_names_is_right() -> None:
    """A name that is here is a member of its struct, or of the library; the counts are those of the table."""
    page = PAGE.read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert len(rows) == page[page.index("| of | name |") :].count("\n| ")
    counts = Counter(place for _, _, place, _ in rows)
    text = f"{len(rows)} names that documentation of layout tensors has: {counts['here']} are here, "
    text += f"{counts['another name']} have another name, {counts['left out']} are left out."
    assert text in page
    for group, name, place, why in rows:
        owner = getattr(stdlib, group, None)
        has = name in stdlib.__all__ if owner is None else name in {**vars(owner), **owner.__dataclass_fields__}
        assert (place == "here") == has, (group, name)
        assert (place == "here") != bool(why.strip()), (group, name)
