"""The exceptions that Einkorn raises: what programs catch.

    from einkorn.errors import EinkornError

Every mistake of a user is an `EinkornError`: a stable code, the place in the user's text, what was expected and what
came, a hint. `einkorn explain CODE` explains a code. `InternalError` is a fault of Einkorn itself.
"""

from __future__ import annotations

from .dsl.diagnostics.errors import AxisError as AxisError
from .dsl.diagnostics.errors import CallErrors as CallErrors
from .dsl.diagnostics.errors import CompileError as CompileError
from .dsl.diagnostics.errors import CompileErrors as CompileErrors
from .dsl.diagnostics.errors import DeviceError as DeviceError
from .dsl.diagnostics.errors import DTypeError as DTypeError
from .dsl.diagnostics.errors import EinkornError as EinkornError
from .dsl.diagnostics.errors import ElementError as ElementError
from .dsl.diagnostics.errors import GraphError as GraphError
from .dsl.diagnostics.errors import InternalError as InternalError
from .dsl.diagnostics.errors import KernelError as KernelError
from .dsl.diagnostics.errors import NoGraphError as NoGraphError
from .dsl.diagnostics.errors import OpAttributeError as OpAttributeError
from .dsl.diagnostics.errors import OpKeyError as OpKeyError
from .dsl.diagnostics.errors import PackageError as PackageError
from .dsl.diagnostics.errors import ReplayError as ReplayError
from .dsl.diagnostics.errors import Several as Several
from .dsl.diagnostics.errors import TargetError as TargetError
from .dsl.diagnostics.errors import UnpicklableError as UnpicklableError

__all__ = [
    "AxisError",
    "CallErrors",
    "CompileError",
    "CompileErrors",
    "DTypeError",
    "DeviceError",
    "EinkornError",
    "ElementError",
    "GraphError",
    "InternalError",
    "KernelError",
    "NoGraphError",
    "OpAttributeError",
    "OpKeyError",
    "PackageError",
    "ReplayError",
    "Several",
    "TargetError",
    "UnpicklableError",
]
