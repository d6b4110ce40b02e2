"""Shows the machine code of NVIDIA's GPUs: ptxas assembles the PTX, nvdisasm writes what came out as text.

Neither needs a GPU. Both come with the CUDA toolkit and as packages: `nvidia-cuda-nvcc` and `nvidia-cuda-nvdisasm`.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import TargetError
from .base import Target
from .nvptx import assemble, find_ptxas, find_tool

KIND: Final = "cuda"  # of targets that have such code
# Of its texts: an instruction (address, predicate, name with suffixes, operands), and a line of the source.
INSTRUCTION: Final = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
SOURCE_LINE: Final = re.compile(r'//## File "([^"]*)", line (\d+)')
SECTION: Final = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")  # the head of a kernel
_LIVE: Final = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/.*// \|\s*(\d*)")


def check_disassembly(target: Target) -> None:
    """Raises TargetError EK0602 unless machine code of the target can be shown here."""
    if target.kind != KIND:
        raise TargetError(
            f"the stage 'sass' shows machine code of NVIDIA's GPUs, and {target.name} is none",
            code="EK0602",
            expected="a target such as sm_90a",
            got=target.name,
            hint="--stage asm shows the assembly of this target, an instruction a line",
        )
    for tool, package in (("ptxas", "nvidia-cuda-nvcc"), ("nvdisasm", "nvidia-cuda-nvdisasm")):
        if find_tool(tool) is None:
            raise TargetError(
                f"{tool} is not installed, and machine code for {target.name} cannot be shown without it",
                code="EK0602",
                hint=f"pip install {package}, or put the CUDA toolkit's bin folder on PATH; --stage asm shows the PTX",
            )


def machine_code(ptx: str, target: Target) -> str:
    """The machine code of PTX as text, an instruction a line, with the lines of the source where they are known.

    Raises:
        TargetError: EK0602 a tool is missing or too old, or the target is none of NVIDIA's.
        InternalError: ptxas refused the text.
    """
    check_disassembly(target)
    return disassemble(assemble(ptx, target), target)


def disassemble(cubin: bytes, target: Target) -> str:
    """The text of a cubin.

    Raises:
        TargetError: EK0602 nvdisasm is missing, or too old to know the code.
    """
    return _nvdisasm(cubin, target, "--print-line-info")


@dataclass(frozen=True)
class KernelResources:
    """What a thread and a block of a kernel take: registers; bytes spilled; bytes of static shared memory."""

    registers: int
    spilled: int
    shared: int


def resources(ptx: str, target: Target) -> dict[str, KernelResources]:
    """What the kernels in PTX take, by name, as ptxas reports it."""
    with tempfile.TemporaryDirectory(prefix="einkorn-") as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [str(find_ptxas()), "-v", f"-arch={target.cpu}", str(source), "-o", str(Path(folder, "kernel.cubin"))]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found, name, spilled = {}, "", 0
    for line in report.splitlines():
        if match := re.search(r"entry function '(\S+)'", line):
            name = match[1]
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = KernelResources(int(match[1]), spilled, int(shared[1]) if shared else 0)
    return found


def live_registers(cubin: bytes, target: Target) -> dict[tuple[str, str], int]:
    """How many registers of 32 bits are live at each instruction, by its kernel and its address.

    Raises:
        TargetError: EK0602 nvdisasm is missing, or too old to know the code.
    """
    counts: dict[tuple[str, str], int] = {}
    kernel = ""
    for line in _nvdisasm(cubin, target, "--print-life-ranges").splitlines():
        if section := SECTION.match(line):
            kernel = section[1]
        elif live := _LIVE.match(line):
            counts[kernel, live[1]] = int(live[2] or 0)
    return counts


def _nvdisasm(cubin: bytes, target: Target, option: str) -> str:
    """What nvdisasm writes about a cubin."""
    check_disassembly(target)
    with tempfile.TemporaryDirectory(prefix="einkorn-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        command = [str(find_tool("nvdisasm")), "--print-code", option, str(file)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        first = (run.stderr + run.stdout).strip().splitlines()[:1]
        raise TargetError(
            f"the installed nvdisasm cannot read the code for {target.name}: {(first or ['no reason given'])[0]}",
            code="EK0602",
            hint="pip install --upgrade nvidia-cuda-nvdisasm",
        )
    return run.stdout
