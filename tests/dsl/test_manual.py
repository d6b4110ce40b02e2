"""The reference that `einkorn doc` writes: from schemas alone, for files and packages, in Markdown and HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from einkorn.compiler.build import build_package
from einkorn.dsl.package.library import load_library
from einkorn.dsl.package.manual import manual, manual_page

KERNELS = '''from typing import TypeVar

from einkorn.dsl import DeviceContext, DType, Float32, Floating, InputTensor, OutputTensor, VariadicTensors
from einkorn.dsl import float32, foreach, int64, register

T = TypeVar("T", bound=Floating)


@register("lib::matmul", fuse=False, fastmath={"contract"})
def matmul(
    out: OutputTensor[T, "m n"], a: InputTensor[T, "m k"], b: InputTensor[T, "k n"], ctx: DeviceContext, *,
    block: int = 64, kind: DType, mode: str = "a|b"
):
    """The product, which takes 2**3 * n operations; see `x**2`.

    More of it: <script>alert(1)</script>."""


@register("lib::split")
def split(low: OutputTensor[int64, "n"], high: OutputTensor[int64, "n"], x: InputTensor[float32, "n"]):
    pass


@register("lib::total")
def total(out: OutputTensor[float32, "n"], xs: VariadicTensors[float32, "n"], scale: Float32):
    pass
'''
MARKDOWN = """# kernels

| op | what it does |
| --- | --- |
| [`lib::matmul`](#lib-matmul) | The product, which takes 2\\*\\*3 \\* n operations; see `x**2`. |
| [`lib::split`](#lib-split) |  |
| [`lib::total`](#lib-total) |  |

## `lib::matmul`

```text
lib::matmul(a: T["m k"], b: T["k n"], *, block: int = 64, kind: DType, mode: str = 'a|b') -> out: T["m n"]
```

The product, which takes 2\\*\\*3 \\* n operations; see `x**2`.

More of it: <script>alert(1)</script>.

| tensor | role | dtype | dims |
| --- | --- | --- | --- |
| `out` | output | `T` | `m n` |
| `a` | input | `T` | `m k` |
| `b` | input | `T` | `k n` |

`T` is one of `float32`, `float64`, `float16`, `bfloat16`.

| parameter | type | default |
| --- | --- | --- |
| `block` | `int` | `64` |
| `kind` | `DType` | required |
| `mode` | `str` | `'a\\|b'` |

- It is not fused with adjacent ops.
- It takes liberties with floating point: contract.
- It may have a way of its own for each kind of device.

```python
out = ops.custom("lib::matmul", device=DeviceRef.CPU(), values=[a, b], parameters={"kind": ...})[0]
```

## `lib::split`
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def test_markdown(kernels: Path) -> None:
    text = manual(load_library(kernels))
    assert text.startswith(MARKDOWN), text
    assert 'low, high = ops.custom("lib::split", device=DeviceRef.CPU(), values=[x])\n' in text
    assert 'lib::total(xs: float32["n"]..., scale: Float32) -> out: float32["n"]\n' in text
    assert "| `scale` | input, one number | `float32` |  |" in text and "values=[*xs, scale]" in text
    assert manual(load_library(kernels), "Mine").startswith("# Mine\n")


def test_a_page(kernels: Path) -> None:
    page = manual_page(load_library(kernels))
    seen: list[str] = []
    ids: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append(tag)
            ids.extend(str(value) for name, value in attrs if name == "id")

    Reader().feed(page)
    assert "script" not in seen and "&lt;script&gt;" in page
    assert ids == ["lib-matmul", "lib-split", "lib-total"] and seen.count("table") >= 4
    assert "<title>kernels</title>" in page and "2**3" in page and "<code>x**2</code>" in page


def test_a_package_says_what_it_was_compiled_for(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        "from einkorn.dsl import InputTensor, OutputTensor, float32, foreach, register\n\n\n"
        '@register("one")\n'
        'def one(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):\n'
        '    """Adds one."""\n'
        "    foreach(out, lambda i: x[i] + 1)\n"
    )
    build_package(str(path), str(tmp_path / "p.pkg"), ["x86-64-v2"], name="parts", version="2.5")
    text = manual(load_library(tmp_path / "p.pkg"))
    assert text.startswith("# parts\n\nVersion 2.5.\n") and "Adds one." in text
    assert "| compiled for | instance | code |" in text and "| x86-64-v2 |" in text
