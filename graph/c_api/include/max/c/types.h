/* The types of the C API. The values of the enumerators are Einkorn's own: compile programs with these headers. */
#ifndef MAX_C_TYPES_H
#define MAX_C_TYPES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define EINKORN_API __attribute__((visibility("default")))
#else
#define EINKORN_API
#endif

/* Objects. Each is made and freed by functions of its own; none has public fields. */
typedef struct M_Status M_Status;                         /* success or failure, and its text */
typedef struct M_RuntimeConfig M_RuntimeConfig;           /* settings of a context */
typedef struct M_RuntimeContext M_RuntimeContext;         /* what models are loaded and executed in */
typedef struct M_CompileConfig M_CompileConfig;           /* which model is loaded, and from where */
typedef struct M_AsyncCompiledModel M_AsyncCompiledModel; /* a model that is loaded, or is being loaded */
typedef struct M_AsyncModel M_AsyncModel;                 /* a model that can be executed, with its weights */
typedef struct M_AsyncTensor M_AsyncTensor;               /* elements, and the spec of them */
typedef struct M_TensorNameArray M_TensorNameArray;       /* names of inputs or outputs */
typedef struct M_TensorSpec M_TensorSpec;                 /* name, dtype and sizes of a tensor */
typedef struct M_AsyncTensorMap M_AsyncTensorMap;         /* tensors by name: inputs or outputs of a call */
typedef struct M_WeightsRegistry M_WeightsRegistry;       /* weights that the program gives */
typedef struct M_Device M_Device;                         /* the host */

/* Element types. Bits 5 to 7 hold the kind. Of integers, bit 0 is the sign and the bits from kIntWidthShift on hold the
   binary logarithm of the width. Of floats, bits 0 to 3 hold the format. */
typedef enum M_Dtype {
  M_UNKNOWN = 0,
  mIsSigned = 1,
  kIntWidthShift = 1,
  mIsComplex = 1 << 5,
  mIsFloat = 1 << 6,
  mIsInteger = 1 << 7,
  M_INT1 = mIsInteger | 0 << kIntWidthShift | mIsSigned,
  M_UINT1 = mIsInteger | 0 << kIntWidthShift,
  M_INT2 = mIsInteger | 1 << kIntWidthShift | mIsSigned,
  M_UINT2 = mIsInteger | 1 << kIntWidthShift,
  M_INT4 = mIsInteger | 2 << kIntWidthShift | mIsSigned,
  M_UINT4 = mIsInteger | 2 << kIntWidthShift,
  M_INT8 = mIsInteger | 3 << kIntWidthShift | mIsSigned,
  M_UINT8 = mIsInteger | 3 << kIntWidthShift,
  M_INT16 = mIsInteger | 4 << kIntWidthShift | mIsSigned,
  M_UINT16 = mIsInteger | 4 << kIntWidthShift,
  M_INT32 = mIsInteger | 5 << kIntWidthShift | mIsSigned,
  M_UINT32 = mIsInteger | 5 << kIntWidthShift,
  M_INT64 = mIsInteger | 6 << kIntWidthShift | mIsSigned,
  M_UINT64 = mIsInteger | 6 << kIntWidthShift,
  M_INT128 = mIsInteger | 7 << kIntWidthShift | mIsSigned,
  M_UINT128 = mIsInteger | 7 << kIntWidthShift,
  M_FLOAT4_E2M1FN = mIsFloat | 0,
  M_FLOAT8_E8M0FNU = mIsFloat | 2,
  M_FLOAT8_E3M4 = mIsFloat | 3,
  M_FLOAT8_E4M3FN = mIsFloat | 4,
  M_FLOAT8_E4M3FNUZ = mIsFloat | 5,
  M_FLOAT8_E5M2 = mIsFloat | 6,
  M_FLOAT8_E5M2FNUZ = mIsFloat | 7,
  M_FLOAT16 = mIsFloat | 8,
  M_BFLOAT16 = mIsFloat | 9,
  M_FLOAT32 = mIsFloat | 10,
  M_FLOAT64 = mIsFloat | 11,
  M_BOOL = 1 << 4
} M_Dtype;

/* Kinds of memory. No function takes one: programs that name them compile. */
typedef enum M_AllocatorType { kSystem = 0, kCaching = 1 } M_AllocatorType;

/* Kinds of values. No function takes one: programs that name them compile. */
typedef enum M_ValueType {
  M_STRING_VALUE,
  M_DOUBLE_VALUE,
  M_LONG_VALUE,
  M_BOOL_VALUE,
  M_TENSOR_VALUE,
  M_LIST_VALUE,
  M_TUPLE_VALUE,
  M_DICT_VALUE,
  M_NONE_VALUE,
  M_UNKNOWN_VALUE,
  M_MOJO_VALUE,
  M_PYTHON_MOJO_VALUE
} M_ValueType;

/* Kinds of devices. There is one device, the host: M_HOST, 0. */
typedef enum M_DeviceType { M_HOST = 0, M_ACCELERATOR = 1 } M_DeviceType;

/* How tensors are printed, for M_setDebugPrintOptions. */
typedef enum M_ResultOutputStyle {
  M_COMPACT = 0,
  M_FULL = 1,
  M_BINARY = 2,
  M_BINARY_MAX_CHECKPOINT = 3,
  M_NONE = 4
} M_ResultOutputStyle;

/* What M_getDimAt returns for an axis whose size is open, and M_getRank where the rank is. */
#define kDynamicDimensionValue INT64_MIN
#define kDynamicRankValue INT64_MIN

#endif
