"""What the commands around mistakes do: `check` finds them, `explain` says what they mean.

Input: options that are already typed (`__main__` parses them). Output: text on standard output. Floors are imported by
the command that needs them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .dsl.diagnostics.codes import MEANINGS
from .dsl.diagnostics.errors import repeated_once
from .dsl.diagnostics.explain import KERNEL_PRELUDE, PROGRAM_PRELUDE, Explanation
from .dsl.diagnostics.explain import explain as explanation_of
from .shown import Shown


def check(sources: Sequence[str], targets: Sequence[str], shown: Shown) -> int:
    """Checks kernel files; prints every mistake and one line that sums up. Gives the exit status."""
    from .compiler.check import check_kernels

    looked = [check_kernels(source, targets or ("host",)) for source in sources]
    errors = repeated_once(error for checked in looked for error in checked.errors)
    for error in (*errors, *(remark for checked in looked for remark in checked.remarks)):
        shown.error(error)
    files, kernels, instances = (sum(getattr(c, count) for c in looked) for count in ("files", "kernels", "instances"))
    what = f"{_plural(files, 'file')}, {_plural(kernels, 'kernel')}, {_plural(instances, 'instance')}"
    shown.summary(what, len(errors), any(checked.more for checked in looked))
    return 1 if errors else 0


def explain(code: str | None, shown: Shown) -> None:
    """Prints what a code means; without a code, the list of all."""
    if code is None:
        for name, meaning in MEANINGS.items():
            print(f"{name}  {meaning}")
        return
    shown.page(_page(explanation_of(code)))


def reproduce(path: str) -> None:
    """Compiles what a reproducer holds; the fault shows itself again, or is gone."""
    from .compiler.pipeline import compile_entry
    from .compiler.reproducer import read_graph, read_reproducer
    from .compiler.targets import lookup
    from .graph.engine.load import load_anew
    from .graph.engine.reproducer import graph_from_json

    graph = read_graph(path)
    if graph is not None:
        load_anew(*graph_from_json(graph))
    else:
        spec, target = read_reproducer(path)
        compile_entry(spec, lookup(target))
    print(f"{path}: compiles without a fault")


def _page(explanation: Explanation) -> str:
    kinds = {example.kind for example in explanation.examples}
    notes = ""
    if "kernel" in kinds:
        notes += f"\nKernel files here begin with\n\n```python\n{KERNEL_PRELUDE}```\n"
    if "python" in kinds:
        notes += f"\nPrograms here begin with\n\n```python\n{PROGRAM_PRELUDE}```\n"
    return explanation.markdown() + notes


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
