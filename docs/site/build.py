"""Builds the documentation as a site: the pages of docs/ with a search, and the API reference from docstrings.

    python docs/site/build.py [FOLDER]     # build/site by default; `make docs` installs what it takes

The pages are staged in a folder of their own, since some lie outside docs/ and the reference is written anew. The order
of pages is that of the tables in the index pages, which are there to be read on their own, too; each table of the first
page becomes a page, a group of the navigation. Every error code has a page with the text of `einkorn explain`. Links to
what is in the repository and not on the site become text. Any warning of Sphinx fails the build.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from api import modules, page

from einkorn.dsl.diagnostics.explain import explained_codes, explained_page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"
OUTSIDE = {"CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog"}  # pages that lie next to docs/
LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^)\s]+)\)")
GROUP = re.compile(r"^### ([^\n]+)\n\n((?:\|[^\n]*\n)+)\n", re.MULTILINE)  # a heading with a table of pages
CODES = ("errors.md", "package.md")  # the pages with tables of error codes
LAST_GROUP = ["api/index.md", *(f"{name}.md" for name in OUTSIDE.values())]  # what no table lists
FENCE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def sources() -> dict[str, Path]:
    """Where each page comes from, by its path on the site."""
    files = {str(file.relative_to(ROOT / "docs")): file for file in sorted((ROOT / "docs").rglob("*.md"))}
    files |= {str(file.relative_to(ROOT / "docs")): file for file in sorted((ROOT / "docs").rglob("*.ipynb"))}
    return files | {f"{name}.md": ROOT / file for file, name in OUTSIDE.items()}


def children(name: str, text: str) -> list[str]:
    """The pages that an index links to, in its order, without those that another index holds."""
    folder, seen = posixpath.dirname(name), []
    for _, target in LINK.findall(FENCE.sub("", text)):
        where = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
        below = posixpath.dirname(where)
        own = below == folder or (posixpath.dirname(below) == folder and posixpath.basename(where) == "index.md")
        if own and where in sources() and where != name and where not in seen:
            seen.append(where)
    return seen


def staged(name: str, source: Path, text: str) -> str:
    """A page of Markdown as the site has it."""
    pages = {file.resolve(): known for known, file in sources().items()}

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, sharp, anchor = target.partition("#")
        file = (source.parent / path).resolve()
        file = file / "index.md" if (file / "index.md").is_file() else file
        if file not in pages:
            return label
        return f"[{label}]({posixpath.relpath(pages[file], posixpath.dirname(name) or '.')}{sharp}{anchor})"

    parts = re.split(FENCE, text)
    text = "".join(part if k % 2 else LINK.sub(link, part) for k, part in enumerate(parts))
    if name in CODES:
        for code in explained_codes():
            text = text.replace(f"| {code} |", f"| [{code}](errors/{code}.md) |")
    if name == "index.md":
        return GROUP.sub(_group_line, text) + toctree([f"{slug(title)}.md" for title, _ in GROUP.findall(text)])
    if posixpath.basename(name) == "index.md":
        own = children(name, source.read_text(encoding="utf-8"))
        text += toctree([posixpath.relpath(other, posixpath.dirname(name) or ".") for other in own])
    return text


def toctree(entries: list[str]) -> str:
    """The entries below a page in the navigation."""
    return "\n:::{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n:::\n"


def _group_line(found: re.Match[str]) -> str:
    """A group on the first page: its name and its pages."""
    pages = ", ".join(f"[{label}]({target})" for label, target in LINK.findall(found[2]))
    return f"- [{found[1]}]({slug(found[1])}.md): {pages}\n\n"


def slug(title: str) -> str:
    """The name of a group's page."""
    return f"group-{re.sub(r'[^a-z]+', '-', title.lower()).strip('-')}"


def group_pages(index: str) -> dict[str, str]:
    """The pages of the groups, made of the tables of the first page."""
    groups = GROUP.findall(index)
    made = {}
    for number, (title, table) in enumerate(groups, 1):
        own = children("index.md", table)
        if number == len(groups):
            own += LAST_GROUP
            table += "| [API reference](api/index.md) | every public name, from its docstring |\n"
            table += "".join(f"| [{name.title()}]({name}.md) | {file} |\n" for file, name in OUTSIDE.items())
        made[f"{slug(title)}.md"] = f"# {title}\n\n{table}{toctree(own)}"
    return made


def error_page(code: str) -> str:
    """The page of an error code, which the page of all codes links to."""
    return f"---\norphan: true\n---\n\n{explained_page(code)}\n[All codes](../errors.md)\n"


def stage(folder: Path) -> None:
    """Writes all pages below a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in sources().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            target.write_text(staged(name, source, source.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = group_pages(index) | {f"errors/{code}.md": error_page(code) for code in explained_codes()}
    (folder / "errors").mkdir()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures")
    (folder / "api").mkdir()
    for name in modules():
        (folder / "api" / f"{name}.md").write_text(page(name), encoding="utf-8")
    lines = ["# API reference", "", "What each module offers, from its docstrings.", ""]
    lines += [f"- [{name}]({name}.md)" for name in modules()]
    lines += ["", ":::{toctree}", ":hidden:", "", *(f"{name}.md" for name in modules()), ":::", ""]
    (folder / "api" / "index.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "_static").mkdir()
    shutil.copyfile(SITE / "style.css", folder / "_static" / "style.css")
    shutil.copyfile(SITE / "conf.py", folder / "conf.py")


def main(target: Path) -> int:
    pages = target.with_name(f"{target.name}-pages")
    stage(pages)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", str(pages), str(target)]
    status = subprocess.run(command, check=False).returncode
    print(f"{target / 'index.html'}" if status == 0 else "the site has mistakes, see above")
    return status


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()))
