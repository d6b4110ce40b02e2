"""The site has every page once, no broken link, and every public name; it is built where Sphinx is."""

from __future__ import annotations

import importlib
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from einkorn.dsl.diagnostics.explain import explained_codes

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Path]]:
    """The program that builds the site, the one that writes the reference, and the pages that they stage."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        build, api = importlib.import_module("build"), importlib.import_module("api")
    finally:
        sys.path.remove(str(ROOT / "docs" / "site"))
    folder = tmp_path_factory.mktemp("site")
    build.stage(folder / "pages")
    yield build, api, folder / "pages"
    for name in ("build", "api", "read_static"):
        del sys.modules[name]


def test_every_page_stands_once_in_the_navigation(site: tuple[Any, Any, Path]) -> None:
    _, _, pages = site
    listed: list[str] = []

    def walk(page: str) -> None:
        listed.append(page)
        text = (pages / page).read_text(encoding="utf-8") if page.endswith(".md") else ""
        for entries in re.findall(r"^:::\{toctree\}\n:hidden:\n\n(.*?)^:::$", text, re.MULTILINE | re.DOTALL):
            for entry in entries.split():
                walk(posixpath.normpath(posixpath.join(posixpath.dirname(page), entry)))

    walk("index.md")
    groups = [page for page in listed if page.startswith("group-")]
    assert len(groups) == 5 and listed[1] == groups[0]  # nothing else stands at the top of the navigation
    there = [str(file.relative_to(pages)) for kind in ("*.md", "*.ipynb") for file in pages.rglob(kind)]
    there = [
        page for page in there if not page.startswith("errors/")
    ]  # 300 of them: the page of all codes links to them
    assert sorted(listed) == sorted(there)
    assert {"contributing.md", "changelog.md", "api/einkorn.graph.md", "language/loops.md"} < set(listed)


def test_every_error_code_has_a_page(site: tuple[Any, Any, Path]) -> None:
    build, _, pages = site
    codes = "".join((pages / name).read_text(encoding="utf-8") for name in build.CODES)
    for code in explained_codes():
        assert f"| [{code}](errors/{code}.md) |" in codes
        text = (pages / "errors" / f"{code}.md").read_text(encoding="utf-8")
        assert f"\n# {code}\n" in text and len(text) > 150
    narrowed = (pages / "errors" / "EK0213.md").read_text(encoding="utf-8")
    assert "Wrong:\n\n```python" in narrowed and "Right:\n\n```python" in narrowed


def test_links_of_the_site_lead_to_its_pages(site: tuple[Any, Any, Path]) -> None:
    build, _, pages = site
    for page in pages.rglob("*.md"):
        for target in LINK.findall(build.FENCE.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:|#", target):
                assert (page.parent / target.partition("#")[0]).is_file(), f"{page.name}: {target}"
    index = (pages / "index.md").read_text(encoding="utf-8")
    assert "[CONTRIBUTING.md](contributing.md)" in index and "../" not in index  # examples are not on the site


def test_the_reference_has_every_public_name(site: tuple[Any, Any, Path]) -> None:
    _, api, pages = site
    assert len(api.modules()) >= 5
    for name in api.modules():
        text = (pages / "api" / f"{name}.md").read_text(encoding="utf-8")
        if api.needs_extra(name):
            wanted = re.findall(r'"(\w+)"', text_of_all(name))
        else:
            wanted = [own for own, _ in api.members(importlib.import_module(name))]
        assert wanted
        for own in wanted:
            assert re.search(rf"^:+{{py:\w+}} {re.escape(own)}\b", text, re.MULTILINE), f"{name}.{own}"
    ops = (pages / "api" / "einkorn.graph.ops.md").read_text(encoding="utf-8")
    assert "::::{py:function} concat(original_vals: Iterable[TensorValueLike], axis: int = 0) -> TensorValue" in ops
    assert "- `GraphError`: EK0426, none given, or ranks or other sizes differ." in ops
    tensor = (pages / "api" / "einkorn.tensor.md").read_text(encoding="utf-8")
    assert "See [eager.md](../eager.md)." in tensor  # pages that docstrings name
    assert "builtins." not in (pages / "api" / "einkorn.dsl.md").read_text(encoding="utf-8")
    assert "{py:function} check_op(" in (pages / "api" / "einkorn.testing.md").read_text(encoding="utf-8")
    assert "{py:class} Layout(shape: Any, stride: Any)" in (pages / "api" / "einkorn.stdlib.md").read_text(
        encoding="utf-8"
    )


def text_of_all(module: str) -> str:
    """The `__all__` of a public module, as its file has it."""
    file = ROOT / "graph" / "public" / module.rpartition(".")[2] / "__init__.py"
    match = re.search(r"^__all__ = \[(.*?)\]", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert match is not None, file
    return match[1]


def test_docstrings_become_markdown(site: tuple[Any, Any, Path]) -> None:
    _, api, _ = site
    doc = (
        "Gives *s and `*s` to *all*.\n\n    x = 1\n\nArgs:\n    a, b: the <first>,\n        and more.\n\n    no python"
    )
    assert api.markdown(doc).split("\n") == [
        "Gives \\*s and `*s` to *all*.",
        *["", "", "```python", "x = 1", "```", ""],
        *["", "**Arguments**", "", "- `a, b`: the \\<first\\>,", "  and more.", "  no python"],
    ]


def test_the_site_is_built_without_a_warning(site: tuple[Any, Any, Path], tmp_path: Path) -> None:
    for module in ("sphinx", "furo", "myst_nb", "sphinx_copybutton"):
        pytest.importorskip(module)
    command = [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "searchindex.js" in {file.name for file in (tmp_path / "site").iterdir()}
