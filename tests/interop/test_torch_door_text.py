"""The text of the door for PyTorch compiles, whether PyTorch is there or not."""

from __future__ import annotations

from einkorn.compiler.codegen.doors.rows import door_object, door_text
from einkorn.dsl import DType
from einkorn.dsl.contract.doors import TorchForm
from einkorn.graph.engine.compile import host_target
from einkorn.graph.engine.doors import door_spec
from einkorn.graph.interop.specialise import specialise

from . import direct_kernels as k

F32 = DType.float32


def test_a_text_serves_all_kernels_of_its_form() -> None:
    texts = []
    for kernel in (k.add_one, k.scale_and_shift):
        spec = door_spec(specialise(kernel, [(F32, 2)]).model._call)
        assert spec is not None
        texts.append(door_text("torch", spec, TorchForm()))
    assert texts[0] == texts[1]
    assert b"ek_table" in door_object("torch", texts[0], host_target())


def test_several_outputs_and_parameters() -> None:
    spec = door_spec(specialise(k.halves, [(F32, 1)]).model._call)
    assert spec is not None
    form = TorchForm(("float", "bool", "dtype", "int"), gradients=True)
    text = door_text("torch", spec, form)
    assert len(door_object("torch", text, host_target())) > 1000
    assert [word for word in form.words(spec) if word[:5] in ("value", "outpu")] == [
        *("output0", "output1", "value0", "value1", "value2", "value3")
    ]
