"""The code of exported files that calls kernels where a program's float mode is not theirs.

int32_t ek_call_plainly(context, pointers, dims, entry)    calls the entry with plain floats, and sets the mode back
"""

from __future__ import annotations

from typing import Final

from ...dsl.diagnostics.errors import TargetError
from ..codegen.kept import kept_object
from ..targets import Target

_TEXT: Final = """
define i32 @ek_call_plainly(ptr %context, ptr %pointers, ptr %dims, ptr %entry) minsize optsize {
  %mode = call i64 @float_mode()
  %plain = call i64 @plain_floats(i64 %mode)
  call void @set_float_mode(i64 %plain)
  %status = call i32 %entry(ptr %context, ptr %pointers, ptr %dims)
  call void @set_float_mode(i64 %mode)
  ret i32 %status
}
"""


def float_modes_object(target: Target) -> bytes:
    """The function as a relocatable object.

    Raises:
        TargetError: the target is not a Linux CPU (EK0609).
    """
    if target.system is None:
        raise TargetError(f"there are no float modes for {target.name}", code="EK0609")
    return kept_object(target.system.float_modes + _TEXT, target)
