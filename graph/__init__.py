"""The graph: types and values, ops, devices and buffers, sessions and models.

    graph = Graph("addition",
                  forward=lambda x: ops.custom("add_one", device=DeviceRef.CPU(), values=[x])[0],
                  input_types=[TensorType(DType.float32, ["rows", 10], DeviceRef.CPU())],
                  custom_extensions=["kernels/"])

Importing this loads neither MLIR nor LLVM.
"""

from ..dsl.diagnostics.shield import shielded

with shielded():
    from ..dsl.types.dtype import DType, finfo
    from . import drawing as drawing
    from . import ops
    from .driver.buffer import Buffer
    from .driver.devices import (
        CPU,
        Accelerator,
        Device,
        DeviceKind,
        DeviceRef,
        accelerator_api,
        accelerator_architecture_name,
        accelerator_count,
        scan_available_devices,
    )
    from .driver.dlpack import DLPackArray
    from .driver.specs import (
        DeviceSpec,
        calculate_virtual_device_count,
        devices_exist,
        load_devices,
    )
    from .driver.streams import DeviceStream
    from .engine.compiled import CompiledModel
    from .engine.debug import DebugConfig, PrintStyle
    from .engine.model import Model, TensorSpec
    from .engine.session import InferenceSession
    from .interop.cast import cast_tensor_to
    from .interop.export import export
    from .onnx import from_onnx
    from .staging.graph import Graph
    from .staging.kernels import KernelLibrary
    from .staging.parse import parse_graph
    from .staging.value import BufferValue, TensorValue, Value
    from .staging.weight import Weight
    from .types.dims import AlgebraicDim, Dim, Shape, StaticDim, SymbolicDim
    from .types.layouts import ConvInputLayout, FilterLayout, InterpolationMode
    from .types.tensor_type import BufferType, TensorType, Type

__all__ = [
    "CPU",
    "Accelerator",
    "AlgebraicDim",
    "Buffer",
    "BufferType",
    "BufferValue",
    "CompiledModel",
    "ConvInputLayout",
    "DLPackArray",
    "DType",
    "DebugConfig",
    "Device",
    "DeviceKind",
    "DeviceRef",
    "DeviceSpec",
    "DeviceStream",
    "Dim",
    "FilterLayout",
    "Graph",
    "InferenceSession",
    "InterpolationMode",
    "KernelLibrary",
    "Model",
    "PrintStyle",
    "Shape",
    "StaticDim",
    "SymbolicDim",
    "TensorSpec",
    "TensorType",
    "TensorValue",
    "Type",
    "Value",
    "Weight",
    "accelerator_api",
    "accelerator_architecture_name",
    "accelerator_count",
    "calculate_virtual_device_count",
    "cast_tensor_to",
    "devices_exist",
    "export",
    "finfo",
    "from_onnx",
    "load_devices",
    "ops",
    "parse_graph",
    "scan_available_devices",
]
