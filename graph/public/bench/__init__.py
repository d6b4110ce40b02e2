"""`einkorn.bench`: benchmarks of kernels, models and other functions. See docs/benchmarks.md."""

from einkorn.graph.bench.compare import Change, compare, load, save
from einkorn.graph.bench.files import benchmark, run_file
from einkorn.graph.bench.measure import Timing, measure

__all__ = ["Change", "Timing", "benchmark", "compare", "load", "measure", "run_file", "save"]
