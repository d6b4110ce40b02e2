"""The text of the door for PyTorch compiles, whether PyTorch is there or not."""

from __future__ import annotations

from einkorn.compiler.doors.rows import door_object, door_text
from einkorn.dsl import DType
from einkorn.dsl.contract.doors import KERNELS, DoorSpec, TorchForm
from einkorn.graph.calling.doors import door_spec
from einkorn.graph.interop.specialise import specialise
from einkorn.graph.loading.compile import host_target

from . import direct_kernels as k

F32 = DType.float32


def test_a_text_serves_all_kernels_of_its_form() -> None:
    texts = []
    for kernel in (k.add_one, k.scale_and_shift):
        spec = door_spec(specialise(kernel, [(F32, 2)]).model.first_caller)
        assert spec is not None
        texts.append(door_text("torch", spec, TorchForm()))
    assert texts[0] == texts[1]
    assert b"ek_door" in door_object("torch", texts[0], host_target())


def test_the_kernels_of_the_dispatcher_compile() -> None:
    code = door_object("torch kernels", door_text("torch kernels", DoorSpec((), (), (), ()), None), host_target())
    assert all(name in code for name in (b"ek_tables", b"ek_kernel0", f"ek_gate{KERNELS - 1}".encode()))


def test_outputs_that_are_given() -> None:
    spec = door_spec(specialise(k.halves, [(F32, 1)]).model.first_caller)
    assert spec is not None
    made, given = TorchForm(lists=(2,)), TorchForm((2,), (0, 1), (False, True))
    for form in (made, given):
        assert len(door_object("torch", door_text("torch", spec, form), host_target())) > 1000
        assert [word for word in form.words(spec) if word.startswith("output")] == ["output0", "output1"]
