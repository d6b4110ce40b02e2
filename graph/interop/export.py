"""Exports several models into one file, and finds what `einkorn export FILE.py:NAME` names.

See also `graph.engine.export` (how files are made).
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...dsl.diagnostics.errors import GraphError, did_you_mean
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.tracebacks import placed
from ...dsl.frontend.python.user_programs import running
from ..arguments import list_of, wrong
from ..engine.model import Model
from ..engine.session import InferenceSession
from ..staging.graph import Graph

if TYPE_CHECKING:
    from ..engine.export import ExportOptions, ExportSource
    from .tools import Compiled

CODE = "EK0483"
COMPILED: ExtensionPoint[type[Compiled]] = ExtensionPoint("graph.interop.tools", "Compiled")


@placed
def export(
    models: Sequence[Model | Compiled],
    path: str | PathLike[str],
    *,
    header: str | PathLike[str] | None = None,
    names: Sequence[str] | None = None,
    targets: str | Sequence[str] = (),
    weights: str = "inside",
    threads: bool = True,
    debug: bool = False,
) -> None:
    """Writes several models as one file that C programs call. Weights that are equal are written once.

    Args:
        models: models and compiled kernels.
        path, header, targets, weights, threads, debug: as of `Model.export`.
        names: begins the names of each model's functions; those of the graphs when left out.

    Raises:
        as `Model.export`; GraphError: EK0483 two models have one name.
    """
    with shielded():
        from ..engine.export import ExportOptions, export_models  # few processes export

    given = list_of("models", models, "models", CODE)
    listed = [None] * len(given) if names is None else list_of("names", names, "names", CODE)
    if len(listed) != len(given) or not given:
        wrong("names", names, f"{max(1, len(given))} names, one for each model", code=CODE)
    options = ExportOptions.of(targets, weights, threads, debug)
    sources = [source_of(model, options, name) for model, name in zip(given, listed, strict=True)]
    export_models(sources, path, header=header, options=options)


def source_of(value: object, options: ExportOptions, name: str | None = None) -> ExportSource:
    """What is exported of a model or a compiled kernel."""
    if isinstance(value, (Model, COMPILED.get())):
        return value.export_source(options, name)
    wrong("models", value, "models and compiled kernels", code=CODE)


def exported_by_name(source: str) -> Model | Compiled:
    """The model that "FILE.py:NAME" names: a graph, a model, a compiled kernel, or a function that returns one.

    Raises:
        GraphError: EK0483 the file has no such thing.
        CompileError: the file is not valid Python, or raised an exception.
    """
    file, _, name = source.rpartition(":")
    is_python = Path(file).suffix == ".py"
    if not is_python or not Path(file).is_file():
        raise GraphError(
            f"there is no file '{file}'" if is_python else f"'{source}' names nothing that can be exported",
            code=CODE,
            argument="source",
            expected="FILE.py:NAME, the name of a graph, a model, a compiled kernel, or a function that returns one",
            got=source,
        )
    import runpy  # few processes export

    known = (Graph, Model, COMPILED.get())
    with running(file):
        names = runpy.run_path(file)
        entry = names.get(name)
        made = entry() if callable(entry) and not isinstance(entry, (*known, type)) else entry
    if isinstance(made, Graph):
        return InferenceSession().load(made)
    if isinstance(made, (Model, COMPILED.get())):
        return made
    there = [each for each, value in names.items() if isinstance(value, known)]
    raise GraphError(
        f"'{name}' of {file} is not a graph, and does not return one"
        if name in names
        else f"there is no '{name}' in {file}",
        code=CODE,
        place=user_place(),
        expected="a graph, a model, a compiled kernel, or a function that returns one",
        got=name,
        hint=did_you_mean(name, there),
    )
