"""The page of `einkorn explore`: it stands alone, its lines are linked through every stage, and it is deterministic."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from einkorn.compiler.build import build_package
from einkorn.compiler.explorer.page import explore

KERNEL = '''"""Less < more & "quoted"."""

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register

T = TypeVar("T", bound=Floating)


def raised(x, c):
    return x * c


@register("page::op")
def op(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    """First line & <b>.

    Second line."""

    def body(i):
        total = x[i] + y[i]
        return exp(raised(total, 3.0))

    foreach(out, body)
'''
SUM, SCALE, EXP = 21, 11, 22  # lines of the kernel


class Page(HTMLParser):
    """Panes by stage and target; each line as (number, keys, text)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.panes: dict[tuple[str, str], list[tuple[int, set[str], str]]] = {}
        self.open: list[str] = []
        self.links: list[str] = []
        self.pane: list[tuple[int, set[str], str]] = []
        self.line: tuple[int, set[str]] | None = None
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [str(given[name]) for name in ("src", "href") if name in given]
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag == "section":
            self.pane = self.panes.setdefault((str(given["data-stage"]), str(given["data-target"])), [])
        if tag == "div" and given.get("class") == "l":
            self.line = int(str(given["data-n"])), set(str(given.get("data-k") or "").split())
            self.text = ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "div" and self.line is not None:
            self.pane.append((*self.line, self.text))
            self.line = None

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explore") / "op.py"
    path.write_text(KERNEL)
    return path


@pytest.fixture(scope="module")
def text(kernel: Path) -> str:
    return explore(str(kernel), ["x86-64-v3", "sm_90a", "gfx942"])


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    return page


def test_the_page_stands_alone(text: str, page: Page) -> None:
    assert page.links == [] and "http" not in text.replace("http-equiv", "") and "@import" not in text
    assert html.escape("First line & <b>.") in text and "<b>" not in text


def test_the_page_opens_at_the_op(text: str, page: Page) -> None:
    (line,) = re.findall(r'<div class="l" id="op" data-n="(\d+)"', text)
    (shown,) = (each for number, _, each in page.panes["source", ""] if number == int(line) and "def " in each)
    assert KERNEL.splitlines()[int(line) - 1].strip() == shown.strip()


def test_every_target_has_every_stage(page: Page) -> None:
    stages = {"typed program", "MLIR", "LLVM IR", "assembly"}
    expected = {(stage, target) for stage in stages for target in ("x86-64-v3", "sm_90a", "gfx942")}
    assert set(page.panes) == {("source", ""), *expected}
    assert all(len(pane) > 10 for pane in page.panes.values())


def test_the_source_is_whole_and_the_library_in_part(page: Page) -> None:
    source = page.panes["source", ""]
    own = KERNEL.splitlines()
    assert [line for _, _, line in source[: len(own)]] == own
    library = [line for _, _, line in source[len(own) :]]
    assert any(line.startswith("def _exp_wide") for line in library) and not any("import" in line for line in library)


@pytest.mark.parametrize(
    ("target", "added", "scaled"),
    [("x86-64-v3", "vaddps", "vmulps"), ("sm_90a", "add.rn.f32", "mul.rn.f32"), ("gfx942", "v_add_f32", "v_mul_f32")],
)
def test_lines_are_linked_through_every_stage(page: Page, target: str, added: str, scaled: str) -> None:
    keys = {number: keys for number, keys, _ in page.panes["source", ""][: KERNEL.count("\n")]}
    words = {
        "typed program": (r" = add %\d+, %\d+ : Float32", r" = mul %\d+, 3"),
        "MLIR": (r"arith\.addf", r"arith\.mulf .*, %"),
        "LLVM IR": (r"fadd .*float", r"fmul .*float"),
        "assembly": (re.escape(added), re.escape(scaled)),
    }
    for stage, patterns in words.items():
        pane = page.panes[stage, target]
        for line, pattern in zip((SUM, SCALE), patterns, strict=True):
            own = [text for _, entry, text in pane if keys[line] & entry]
            assert any(re.search(pattern, text) for text in own), (stage, line, own)
    called = [entry for _, entry, text in page.panes["MLIR", target] if keys[EXP] & entry]
    assert len(called) > 10, "what the exponential became belongs to the line that calls it"
    assert any(keys[SCALE] & entry for entry in called), "a helper's operations belong to its line and to the caller's"


def test_heads_of_loops_are_linked(page: Page) -> None:
    loops = [entry for _, entry, text in page.panes["MLIR", "x86-64-v3"] if "scf.for" in text and "%c" not in text]
    assert loops and all(loops)


def test_a_package_without_sources_has_a_page_too(kernel: Path, tmp_path: Path) -> None:
    package = build_package(str(kernel), str(tmp_path / "op.pkg"), [])
    page = Page(explore(str(package.path), ["x86-64-v3"], op="page::op", dtypes={"T": "float64"}))
    assert any("vaddpd" in text for _, _, text in page.panes["assembly", "x86-64-v3"])


def test_the_same_page_in_another_process(kernel: Path) -> None:
    program = (
        "import sys; from einkorn.compiler.explorer.page import explore;"
        "sys.stdout.write(explore(sys.argv[1], ['x86-64-v2']))"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", program, str(kernel)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1 and "vaddps" not in pages.pop()
