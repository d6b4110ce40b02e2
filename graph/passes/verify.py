"""Checks that a graph is whole, and that it takes and gives what it did before a pass."""

from __future__ import annotations

from ...dsl.diagnostics.errors import InternalError
from ..ir import Body, Branch, Carried, Control, GraphIR, Loop, Node


def verify_graph(ir: GraphIR, before: GraphIR, name: str) -> None:
    """Checks a graph that a pass has made of another one.

    Raises:
        InternalError: a value is read before it is made or outside of the body that makes it, numbers are not in order,
            or the graph's inputs or outputs have other types than before.
    """
    wrong = _mistake(ir) or _difference(ir, before)
    if wrong:
        raise InternalError(f"the graph '{ir.name}' is broken after the pass '{name}': {wrong}\n{ir}")


def _difference(ir: GraphIR, before: GraphIR) -> str:
    if ir.inputs != before.inputs:
        return "its inputs have other types than before"
    if ir.output_types != before.output_types:
        return "its outputs have other types than before"
    return "" if len(ir.steps) == len(before.steps) else "it computes other sizes than before"


def _mistake(ir: GraphIR) -> str:
    """What is wrong with a graph, or nothing."""
    regions, made_in = ir.regions, [0] * len(ir.inputs)

    def is_visible(value: int, region: int) -> bool:
        where = made_in[value] if value < len(made_in) else -1
        while region not in (where, 0):
            region = regions.around(region)
        return region == where

    for number, item in enumerate(ir.nodes):
        region = regions.of[number]
        if isinstance(item, Node | Control):
            missing = [value for value in item.operands if not is_visible(value, region)]
            if missing:
                return f"'{item.name}' reads %{missing[0]}, which is not defined there"
        if isinstance(item, Control):
            for k, body in enumerate(item.bodies):
                if not _is_in_order(body, item, number):
                    return f"the bodies of '{item.name}' do not stand before it"
                for value in body.outputs:
                    if not is_visible(value, regions.first[number] + k):
                        return f"a body of '{item.name}' returns %{value}, which is not defined there"
        if isinstance(item, Loop) and not isinstance(ir.nodes[item.bodies[0].first - 1], Carried):
            return "what a loop carries does not stand before its bodies"
        for value in item.results:
            if value != len(made_in):
                return f"%{value} is not the next number"
            made_in.append(region)
    for value in ir.outputs:
        if not is_visible(value, 0):
            return f"the output %{value} is not defined"
    return ""


def _is_in_order(body: Body, control: Branch | Loop, number: int) -> bool:
    return body.first <= body.end <= number and control.bodies[0].end == control.bodies[1].first
