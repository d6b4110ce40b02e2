/* Tensors, their specs, and maps of them by name. */
#ifndef MAX_C_TENSOR_H
#define MAX_C_TENSOR_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

EINKORN_API M_TensorSpec *M_newTensorSpec(const int64_t *shape, int64_t rankSize, M_Dtype dtype, const char *tensorName,
                                          const M_Device *device);
EINKORN_API int M_isDynamicRanked(const M_TensorSpec *spec);
EINKORN_API int64_t M_getDimAt(const M_TensorSpec *spec, size_t axis);
EINKORN_API int64_t M_getRank(const M_TensorSpec *spec);
EINKORN_API M_Dtype M_getDtype(const M_TensorSpec *spec);
EINKORN_API const char *M_getName(M_TensorSpec *spec);
EINKORN_API M_DeviceType M_getDeviceTypeFromSpec(const M_TensorSpec *spec);
EINKORN_API int M_getDeviceIdFromSpec(const M_TensorSpec *spec);
EINKORN_API void M_freeTensorSpec(M_TensorSpec *spec);
EINKORN_API M_AsyncTensorMap *M_newAsyncTensorMap(const M_RuntimeContext *context);
EINKORN_API void M_borrowTensorInto(M_AsyncTensorMap *tensors, void *input, const M_TensorSpec *tensorSpec,
                                    M_Status *status);
EINKORN_API M_AsyncTensor *M_getTensorByNameFrom(M_AsyncTensorMap *tensorMap, const char *name, M_Status *status);
EINKORN_API void M_freeAsyncTensorMap(M_AsyncTensorMap *tensorMap);
EINKORN_API size_t M_getTensorNumElements(const M_AsyncTensor *tensor);
EINKORN_API M_Dtype M_getTensorType(const M_AsyncTensor *tensor);
EINKORN_API const void *M_getTensorData(const M_AsyncTensor *tensor);
EINKORN_API M_TensorSpec *M_getTensorSpec(const M_AsyncTensor *tensor);
EINKORN_API M_Device *M_getTensorDevice(const M_AsyncTensor *tensor);
EINKORN_API M_AsyncTensor *M_copyTensorToDevice(M_AsyncTensor *tensor, M_Device *device, M_Status *status);
EINKORN_API void M_freeTensor(M_AsyncTensor *tensor);
EINKORN_API void M_freeTensorNameArray(M_TensorNameArray *names);

#ifdef __cplusplus
}
#endif
#endif
