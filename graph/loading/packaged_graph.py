"""Finds the code of a graph in a package that holds it whole; the compiler is only loaded where there is none.

See also `engine.graph_package` (which writes it), `engine.packaged_model`, `loading.packaged_code` (packages of ops).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...dsl.contract.checks import Checks
from ...dsl.contract.unit import Piece
from ...dsl.diagnostics.errors import PackageError
from ...dsl.diagnostics.json_reading import Misread
from ...dsl.environment.cache import content_key
from ...dsl.environment.compiling import compiling
from ...dsl.package.container import Package
from ...dsl.package.manifest import GraphCode, GraphRecord
from ...dsl.package.shared_object import read_shared_object
from ..findings.reports import read_reports
from ..ir import GraphIR
from ..passes.pipeline import Planning, plan_graph
from .cache_keys import partition_from_json
from .code import LoadedCode
from .compile import architecture, facts_on_device, lacking
from .load import keep_pieces, load_graph

_log = logging.getLogger("einkorn.load")


def packaged_loader(
    package: Package, record: GraphRecord, groups: Any, checks: Checks | None
) -> Callable[[GraphIR], LoadedCode]:
    """What finds the code of a graph for a model: in the package, and elsewhere for inputs that are not contiguous.

    Args:
        package, record: where the graph is.
        groups: for each target, the groups of kernels that its code has, as JSON.
        checks: what code checks that is compiled now.
    """

    @compiling
    def load(ir: GraphIR) -> LoadedCode:
        code = _best(record)
        if code is None or ir.patterns or ir.traced:
            return load_graph(ir, checks=checks)
        data, chosen = package.graph_code(code), code.target
        try:
            read_reports(read_shared_object(data, architecture(code.target)))
            parts = partition_from_json(groups[chosen], ir)
        except (Misread, KeyError, TypeError, ValueError) as wrong:
            raise PackageError(
                f"{code.code.member!r} in {package.archive.shown!r} is not code as Einkorn writes it: it {wrong}",
                code="EK0562",
                hint="nothing of it was loaded; export the model again",
            ) from None
        plan = plan_graph(Planning(ir, facts_on_device(ir), parts=parts, entry=False))
        _log.info("graph '%s': from %s, for %s", ir.name, package.archive.shown, code.target)
        key = content_key("package", code.code.sha256)
        tier = f"{package.archive.shown} ({code.target})"
        return keep_pieces(
            key, [Piece("so", code.target, data)], ir.device.to_device(), plan, tier, package.manifest.abi
        )

    return load


def _best(record: GraphRecord) -> GraphCode | None:
    """The code for the highest target that this machine runs."""
    fitting = [code for code in record.code if not lacking(code.target, code.requirements)]
    return max(fitting, key=lambda code: (len(code.requirements), code.target), default=None)
