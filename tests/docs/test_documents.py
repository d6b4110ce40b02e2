"""What README.md and docs/ show is true: their code runs, their commands print what stands below them.

In a document,

- the blocks of `docs/language/index.md` run before those of any other page of that folder;
- a ```python block runs, in order, in one namespace and one temporary folder; it may define kernels, as a cell does;
- a ```python block whose first line is `# path/to/file.py` is written to that file instead;
- a ```text block right after a ```python block is what that block prints;
- a ```c block whose first line is `// path/to/file.c` or `// path/to/file.h` is written to that file;
- a ```console block holds commands and the lines that they print: `$ einkorn ...` is run, so are `$ cc ...`,
  `$ ./program` and `$ einkorn runtime ...`, which calls `cc`, where there is a `cc`; others are not.

In shown output `...` stands for anything: within a line, or alone for any number of lines. Lines at the end may be left
out. Paths in the temporary folder are shown relative to it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from einkorn import dsl
from einkorn.dsl.diagnostics.text import keep_text

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIRST = ("README.md", "tour.md", "index.md")  # what is read first is run with all optimisation, as it is by readers
# page -> the library, an extra, that its code calls kernels from
WANTS = {"torch.md": "torch", "jax.md": "jax", "numba.md": "numba", "dask.md": "xarray", "ray.md": "ray"}
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:#|//) ([\w./-]+\.(?:py|json|c|h))\n")


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    follows: bool  # only blank lines between it and the block before


def blocks_of(text: str) -> list[Block]:
    collected = []
    end = -1
    for match in FENCE.finditer(text):
        follows = end >= 0 and not text[end : match.start()].strip()
        collected.append(Block(match[1], match[2], text.count("\n", 0, match.start()) + 2, follows))
        end = match.end()
    return collected


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` begins with what is shown; `...` stands for anything."""
    pattern = "\n"
    for line in shown.rstrip("\n").split("\n"):
        part = (
            r"(?:.*\n)*?" if line.strip() == "..." else ".*?".join(map(re.escape, line.rstrip().split("..."))) + r"\n"
        )
        pattern += part
    text = "\n" + "".join(line.rstrip() + "\n" for line in printed.split("\n"))
    return re.match(pattern, text) is not None


def compare(where: str, shown: str, printed: str) -> None:
    if not matches(shown, printed):
        pytest.fail(f"{where}\n{shown}\nbut this is printed\n{printed}", pytrace=False)


class Reader:
    """Does what a reader of a document would do, and compares."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""

    def read(self, document: Path) -> None:
        self.document = document
        for block in blocks_of(document.read_text(encoding="utf-8")):
            where = f"{document.name}:{block.line}"
            file = FILE.match(block.text)
            if block.kind in ("python", "json", "c") and file:
                path = self.folder / file[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text.split("\n", 1)[1] if block.kind == "json" else block.text)
            elif block.kind == "python":
                self.run(block, where)
            elif block.kind == "text" and block.follows:
                compare(f"{where} shows", block.text, self.printed)
            elif block.kind == "console":
                self.console(block.text, where)

    def run(self, block: Block, where: str) -> None:
        # Padded so that a traceback names the line of the document.
        text = "\n" * (block.line - 1) + block.text
        code = compile(text, str(self.document), "exec")
        keep_text(self.namespace, str(self.document), text)  # the file's own is not Python
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, self.namespace)
        self.printed = self.relative(output.getvalue())

    def console(self, text: str, where: str) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.replace("\\\n", " ").partition("\n")
            words = shlex.split(command)
            settings = [word for word in words if re.match(r"EINKORN_\w+=", word)]
            words = words[len(settings) :]
            is_einkorn = words[0].rpartition("/")[2] == "einkorn"
            wants_cc = words[0] == "cc" or words[0].startswith("./") or (is_einkorn and words[1:2] == ["runtime"])
            if not (is_einkorn or wants_cc) or (wants_cc and shutil.which("cc") is None):
                continue
            if is_einkorn:
                words = [sys.executable, "-m", "einkorn", *words[1:]]
            done = subprocess.run(
                words,
                cwd=self.folder,
                env=dict(os.environ) | dict(word.split("=", 1) for word in settings),
                capture_output=True,
                text=True,
                timeout=120,
            )
            printed = self.relative(done.stdout + done.stderr)
            if shown:
                compare(f"{where}: `{command}` shows", shown, printed)
            else:
                assert done.returncode == 0, f"{where}: `{command}` fails with\n{printed}"

    def relative(self, text: str) -> str:
        return text.replace(f"{self.folder}/", "")


def prepare(document: Path, folder: Path) -> None:
    """What a document takes for granted."""
    if document.name == "package.md":
        kernels = ROOT / "examples" / "custom_ops" / "kernels" / "addition.py"
        subprocess.run(
            [sys.executable, "-m", "einkorn", "build", str(kernels), "-o", "name.pkg"], cwd=folder, check=True
        )


def preface(document: Path) -> Path | None:
    """The page whose code the examples of `document` use: in a folder of pages, its index."""
    index = document.with_name("index.md")
    return index if document.parent != ROOT / "docs" and index.exists() and index != document else None


@pytest.mark.parametrize(
    "document",
    [pytest.param(path, marks=[pytest.mark.as_shipped] * (path.name in FIRST)) for path in DOCUMENTS],
    ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS],
)
def test_a_document_does_what_it_says(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if document.name in WANTS and importlib.util.find_spec(WANTS[document.name]) is None:
        pytest.skip(f"{WANTS[document.name]} is not installed")
    folder = tmp_path.resolve()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(folder / ".cache"))
    for name in re.findall(r"^# (?:\w+/)*(\w+)\.py$", document.read_text(encoding="utf-8"), re.MULTILINE):
        monkeypatch.delitem(sys.modules, name, raising=False)  # another test's file of that name
    prepare(document, folder)
    linecache.clearcache()
    reader = Reader(folder)
    if (index := preface(document)) is not None:
        reader.read(index)
    reader.read(document)


def anchors_of(document: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", document.read_text(encoding="utf-8")))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        page = document.parent / file if file else document
        assert page.exists(), target
        assert not anchor or anchor in anchors_of(page), target


def test_every_page_can_be_reached_from_the_index() -> None:
    for index in (ROOT / "docs").rglob("index.md"):
        text = index.read_text(encoding="utf-8")
        pages = [*index.parent.glob("*.md"), *index.parent.glob("*/index.md")]
        for page in pages:
            name = page.relative_to(index.parent)
            assert page == index or f"]({name})" in text, name
    assert all(page.with_name("index.md").exists() for page in (ROOT / "docs").rglob("*.md"))


def test_every_name_of_the_language_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "language" / "names.md").read_text(encoding="utf-8")
    sized = re.compile(r"(U?Int|Float|u?int|float)\d+")  # the page writes `int8` … `int64`
    ours = {n for n, v in vars(dsl).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    names = {n for n in ours - {"annotations", "TYPE_CHECKING"} if not sized.fullmatch(n)}
    assert len(names) > 40
    assert sorted(n for n in names if not re.search(rf"`{n}\b", page)) == []


def test_every_error_code_has_a_sentence() -> None:
    code = re.compile(r"EK\d{4}")
    documented: dict[str, int] = {}
    for page in ("errors.md", "package.md"):
        for row in re.findall(r"^\| (EK\d{4}) \|", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE):
            documented[row] = documented.get(row, 0) + 1
    folders = ("dsl", "compiler", "graph", "stdlib")
    files = [*ROOT.glob("*.py"), *(file for folder in folders for file in (ROOT / folder).rglob("*.py"))]
    used = {each for file in files for each in code.findall(file.read_text(encoding="utf-8"))}
    assert sorted(used - set(documented)) == [], "used, but not in docs/errors.md"
    assert sorted(set(documented) - used) == [], "in docs/, but not used"
    assert [name for name, count in documented.items() if count > 1] == []


def test_the_comparison_of_outputs_can_fail() -> None:
    assert matches("a ... c\n...\nz", "a b c\n1\n2\nz\nmore")
    assert not matches("a ... c\n...\nz", "a b c\n1\n2\n")
    assert not matches("a", "ab")
