/* Tensors, their specs, and maps of them by name. Tensors are contiguous, the last axis fastest. */
#ifndef MAX_C_TENSOR_H
#define MAX_C_TENSOR_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

/* *** Specs *** */

/* Returns a new spec: a name, a dtype and the sizes of the axes, all of which are copied. With the rank
   kDynamicRankValue the shape is open and `shape` is not read. `tensorName` and `device` may be NULL. Returns NULL where
   the rank is below 0 or above 1024, where `shape` is missing, or where there is no memory. M_freeTensorSpec frees it. */
EINKORN_API M_TensorSpec *M_newTensorSpec(const int64_t *shape, int64_t rankSize, M_Dtype dtype, const char *tensorName,
                                          const M_Device *device);

/* Returns 1 where the rank is open, else 0. */
EINKORN_API int M_isDynamicRanked(const M_TensorSpec *spec);

/* Returns the size of an axis, kDynamicDimensionValue where calls decide it, and 0 where there is no such axis. */
EINKORN_API int64_t M_getDimAt(const M_TensorSpec *spec, size_t axis);

/* Returns the number of axes, or kDynamicRankValue where it is open. */
EINKORN_API int64_t M_getRank(const M_TensorSpec *spec);

/* Returns the dtype. */
EINKORN_API M_Dtype M_getDtype(const M_TensorSpec *spec);

/* Returns the name, which the spec owns. */
EINKORN_API const char *M_getName(M_TensorSpec *spec);

/* Returns M_HOST: there is no other device. */
EINKORN_API M_DeviceType M_getDeviceTypeFromSpec(const M_TensorSpec *spec);

/* Returns 0, the number of the host. */
EINKORN_API int M_getDeviceIdFromSpec(const M_TensorSpec *spec);

/* Frees a spec and its name. NULL is ignored. */
EINKORN_API void M_freeTensorSpec(M_TensorSpec *spec);

/* *** Maps *** */

/* Returns a new map without tensors, or NULL where there is no memory. M_freeAsyncTensorMap frees it. */
EINKORN_API M_AsyncTensorMap *M_newAsyncTensorMap(const M_RuntimeContext *context);

/* Adds a tensor, in place of one of the same name. The spec is copied. The elements at `input` are not: they stay the
   caller's, and valid until no call uses them. Inputs that a model changes are changed there. Fails where the dtype is
   one that models do not have or `input` is NULL (EK0452), where a size is open, negative or too large (EK0454), and
   where the map holds outputs of a call that M_executeModel began. */
EINKORN_API void M_borrowTensorInto(M_AsyncTensorMap *tensors, void *input, const M_TensorSpec *tensorSpec,
                                    M_Status *status);

/* Returns a tensor of the map, which M_freeTensor frees; the elements are shared, and outlive the map. It waits for the
   call whose outputs the map holds, and fails where that failed. Returns NULL and a failure where the map has no such
   name. */
EINKORN_API M_AsyncTensor *M_getTensorByNameFrom(M_AsyncTensorMap *tensorMap, const char *name, M_Status *status);

/* Frees a map. Tensors that were taken from it stay valid. A call that still fills it is waited for. NULL is ignored. */
EINKORN_API void M_freeAsyncTensorMap(M_AsyncTensorMap *tensorMap);

/* *** Tensors *** */

/* Returns the number of elements: the product of the sizes. */
EINKORN_API size_t M_getTensorNumElements(const M_AsyncTensor *tensor);

/* Returns the dtype. */
EINKORN_API M_Dtype M_getTensorType(const M_AsyncTensor *tensor);

/* Returns the address of the elements, which are valid until the tensor is freed. Of 4-bit dtypes, two elements share a
   byte, the first in its low half. */
EINKORN_API const void *M_getTensorData(const M_AsyncTensor *tensor);

/* Returns a new spec with the tensor's name, dtype and sizes, or NULL where there is no memory. M_freeTensorSpec frees
   it. */
EINKORN_API M_TensorSpec *M_getTensorSpec(const M_AsyncTensor *tensor);

/* Returns a new device, the one whose memory the tensor is in, or NULL where there is no memory. M_freeDevice frees
   it. */
EINKORN_API M_Device *M_getTensorDevice(const M_AsyncTensor *tensor);

/* Returns a tensor with a copy of the elements in memory of `device`, which M_freeTensor frees. Returns NULL and a
   failure where an argument is NULL or there is no memory. */
EINKORN_API M_AsyncTensor *M_copyTensorToDevice(M_AsyncTensor *tensor, M_Device *device, M_Status *status);

/* Frees a tensor. Its elements are freed with the last tensor that shares them; borrowed elements stay. NULL is
   ignored. */
EINKORN_API void M_freeTensor(M_AsyncTensor *tensor);

/* *** Names *** */

/* Frees names that M_getInputNames or M_getOutputNames returned. NULL is ignored. */
EINKORN_API void M_freeTensorNameArray(M_TensorNameArray *names);

#ifdef __cplusplus
}
#endif
#endif
