/* The types of the C API. Each is made and freed by functions of its own; none has public fields. */
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

typedef struct M_Status M_Status;
typedef struct M_RuntimeConfig M_RuntimeConfig;
typedef struct M_RuntimeContext M_RuntimeContext;
typedef struct M_CompileConfig M_CompileConfig;
typedef struct M_AsyncCompiledModel M_AsyncCompiledModel;
typedef struct M_AsyncModel M_AsyncModel;
typedef struct M_AsyncTensor M_AsyncTensor;
typedef struct M_TensorNameArray M_TensorNameArray;
typedef struct M_TensorSpec M_TensorSpec;
typedef struct M_AsyncTensorMap M_AsyncTensorMap;
typedef struct M_WeightsRegistry M_WeightsRegistry;
typedef struct M_Device M_Device;

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

typedef enum M_AllocatorType { kSystem = 0, kCaching = 1 } M_AllocatorType;

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

typedef enum M_DeviceType { M_HOST = 0, M_ACCELERATOR = 1 } M_DeviceType;

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
