"""Runs the tests of devices on a GPU of this machine, and then `benchmarks/gpu.py`: what `make test-gpu` does.

    python tests/gpu/hardware.py                 # tests and figures, in some fifteen minutes
    python tests/gpu/hardware.py --no-figures
    python tests/gpu/hardware.py -k streams      # what else is said goes to pytest

What is missing is said first: without a GPU nothing is run, and the exit status is 1; without PyTorch what needs it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from einkorn.dsl.diagnostics.errors import DeviceError
from einkorn.graph import Accelerator

HERE = Path(__file__).resolve().parent
FILES = ("check_buffers.py", "check_graphs.py", "check_ops.py", "check_torch.py")


def main(arguments: Sequence[str]) -> int:
    try:
        gpu = Accelerator(0)
    except DeviceError as error:
        print(f"not run: {error.message}")
        for line in (*error.notes, *([error.hint] if error.hint else [])):
            print(f"  {line}")
        print("  needed: a GPU, its driver, and pip install cuda-bindings or hip-python")
        return 1
    stats = gpu.stats
    print(f"on {stats['name']} ({stats['architecture']}), driver of {stats['driver']}", flush=True)
    files = list(FILES)
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: nothing is compared with it, and no tensor of it is taken", flush=True)
        files.remove("check_torch.py")
    names = ["-o", "python_files=check_*.py", "-o", "python_functions=check_*", "-p", "no:cacheprovider"]
    chosen = [argument for argument in arguments if argument != "--no-figures"]
    paths = [str(HERE / "device" / name) for name in files]
    environment = {**os.environ, "TESTS_ON_HARDWARE": "1"}
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *names, *chosen, *paths], env=environment, check=False
    )
    if tests.returncode or "--no-figures" in arguments:
        return tests.returncode
    results = Path(os.environ.get("TMPDIR", "/tmp"), "einkorn-gpu.json")
    program = str(HERE.parents[1] / "benchmarks" / "gpu.py")
    figures = subprocess.run([sys.executable, program, "--json", str(results)], check=False)
    print(f"figures: {results}")
    return figures.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
