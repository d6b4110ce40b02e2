/* Tensors, their specs, maps of them by name, and weights that the program gives. */
#include "internal.h"

/* *** specs *** */

M_TensorSpec *M_newTensorSpec(const int64_t *shape, int64_t rankSize, M_Dtype dtype, const char *tensorName,
                              const M_Device *device) {
  (void)device; /* the host, the only one */
  bool open = rankSize == kDynamicRankValue;
  if (!open && (rankSize < 0 || rankSize > 1024 || (rankSize > 0 && shape == NULL))) return NULL;
  M_TensorSpec *spec = new_spec(rankSize, dtype, tensorName == NULL ? "" : tensorName);
  if (spec != NULL && rankSize > 0) memcpy(spec->shape, shape, (size_t)rankSize * sizeof *shape);
  return spec;
}

/* A spec whose sizes are still to be written. */
M_TensorSpec *new_spec(int64_t rank, M_Dtype dtype, const char *name) {
  size_t sizes = rank < 0 ? 0 : (size_t)rank * sizeof(int64_t), length = strlen(name) + 1;
  M_TensorSpec *spec = malloc(sizeof *spec + sizes + length);
  if (spec == NULL) return NULL;
  spec->rank = rank;
  spec->dtype = dtype;
  spec->shape = (int64_t *)(spec + 1);
  spec->name = memcpy((char *)(spec + 1) + sizes, name, length);
  return spec;
}

M_TensorSpec *copy_spec(const M_TensorSpec *spec) {
  return M_newTensorSpec(spec->shape, spec->rank, spec->dtype, spec->name, NULL);
}

void M_freeTensorSpec(M_TensorSpec *spec) { free(spec); }

int M_isDynamicRanked(const M_TensorSpec *spec) { return spec != NULL && spec->rank == kDynamicRankValue; }

int64_t M_getDimAt(const M_TensorSpec *spec, size_t axis) {
  return spec == NULL || spec->rank < 0 || axis >= (size_t)spec->rank ? 0 : spec->shape[axis];
}

int64_t M_getRank(const M_TensorSpec *spec) { return spec == NULL ? 0 : spec->rank; }

M_Dtype M_getDtype(const M_TensorSpec *spec) { return spec == NULL ? M_UNKNOWN : spec->dtype; }

const char *M_getName(M_TensorSpec *spec) { return spec == NULL ? NULL : spec->name; }

M_DeviceType M_getDeviceTypeFromSpec(const M_TensorSpec *spec) {
  (void)spec;
  return M_HOST;
}

int M_getDeviceIdFromSpec(const M_TensorSpec *spec) {
  (void)spec;
  return 0;
}

/* How many elements and bytes a tensor has; false where a size is open, below 0, or the bytes are too many. */
bool count_elements(const M_TensorSpec *spec, size_t *count, size_t *bytes) {
  size_t product = 1, bits;
  bool empty = false;
  for (int64_t k = 0; k < spec->rank; k++) empty |= spec->shape[k] == 0;
  for (int64_t k = 0; k < spec->rank; k++) {
    if (spec->shape[k] < 0) return false;
    if (!empty && __builtin_mul_overflow(product, (size_t)spec->shape[k], &product)) return false;
  }
  if (spec->rank < 0) return false;
  *count = empty ? 0 : product;
  if (__builtin_mul_overflow(*count, einkorn_dtype_bits(spec->dtype), &bits)) return false;
  *bytes = bits / 8 + (bits % 8 != 0);
  return true;
}

/* *** tensors *** */

/* Takes the spec, which is freed where there is no memory, and becomes an owner of the block. */
M_AsyncTensor *new_tensor(M_TensorSpec *spec, void *data, block *owner) {
  M_AsyncTensor *tensor = spec == NULL ? NULL : malloc(sizeof *tensor);
  if (tensor == NULL) {
    M_freeTensorSpec(spec);
    return NULL;
  }
  tensor->spec = spec;
  tensor->data = data;
  tensor->block = owner;
  if (owner != NULL) atomic_fetch_add(&owner->owners, 1);
  return tensor;
}

M_AsyncTensor *share_tensor(const M_AsyncTensor *tensor) {
  return new_tensor(copy_spec(tensor->spec), tensor->data, tensor->block);
}

void M_freeTensor(M_AsyncTensor *tensor) {
  if (tensor == NULL) return;
  if (tensor->block != NULL && atomic_fetch_sub(&tensor->block->owners, 1) == 1) {
    give_memory(&tensor->block->allocator, tensor->block->data);
    free(tensor->block);
  }
  M_freeTensorSpec(tensor->spec);
  free(tensor);
}

size_t M_getTensorNumElements(const M_AsyncTensor *tensor) {
  size_t count, bytes;
  return tensor != NULL && count_elements(tensor->spec, &count, &bytes) ? count : 0;
}

M_Dtype M_getTensorType(const M_AsyncTensor *tensor) { return tensor == NULL ? M_UNKNOWN : tensor->spec->dtype; }

const void *M_getTensorData(const M_AsyncTensor *tensor) { return tensor == NULL ? NULL : tensor->data; }

M_TensorSpec *M_getTensorSpec(const M_AsyncTensor *tensor) { return tensor == NULL ? NULL : copy_spec(tensor->spec); }

M_Device *M_getTensorDevice(const M_AsyncTensor *tensor) { return tensor == NULL ? NULL : M_newDevice(M_HOST, 0, NULL); }

M_AsyncTensor *M_copyTensorToDevice(M_AsyncTensor *tensor, M_Device *device, M_Status *status) {
  size_t count, bytes;
  if (tensor == NULL || device == NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "M_copyTensorToDevice: '%s' is null", tensor == NULL ? "tensor" : "device");
    return NULL;
  }
  M_AsyncTensor *copy = NULL;
  block *owner = calloc(1, sizeof *owner);
  allocator allocator = tensor->block == NULL ? (struct allocator){NULL, NULL, NULL} : tensor->block->allocator;
  void *data = count_elements(tensor->spec, &count, &bytes) ? take_memory(&allocator, bytes) : NULL;
  if (owner != NULL && data != NULL) {
    owner->allocator = allocator;
    owner->data = data;
    copy = new_tensor(copy_spec(tensor->spec), data, owner);
  }
  if (copy == NULL) {
    free(owner);
    give_memory(&allocator, data);
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return NULL;
  }
  if (bytes > 0) memcpy(data, tensor->data, bytes);
  succeed(status);
  return copy;
}

/* *** maps *** */

M_AsyncTensorMap *M_newAsyncTensorMap(const M_RuntimeContext *context) {
  (void)context;
  return calloc(1, sizeof(M_AsyncTensorMap));
}

M_AsyncTensor *find_tensor(const M_AsyncTensorMap *map, const char *name) {
  for (size_t k = 0; k < map->count; k++)
    if (strcmp(map->tensors[k]->spec->name, name) == 0) return map->tensors[k];
  return NULL;
}

/* Takes the tensor, in place of one of the same name. */
bool add_tensor(M_AsyncTensorMap *map, M_AsyncTensor *tensor) {
  if (tensor == NULL) return false;
  for (size_t k = 0; k < map->count; k++)
    if (strcmp(map->tensors[k]->spec->name, tensor->spec->name) == 0) {
      M_freeTensor(map->tensors[k]);
      map->tensors[k] = tensor;
      return true;
    }
  if (!grow((void **)&map->tensors, map->count, &map->room, sizeof *map->tensors)) {
    M_freeTensor(tensor);
    return false;
  }
  map->tensors[map->count++] = tensor;
  return true;
}

void M_borrowTensorInto(M_AsyncTensorMap *tensors, void *input, const M_TensorSpec *tensorSpec, M_Status *status) {
  size_t count, bytes;
  if (tensors == NULL || tensorSpec == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_borrowTensorInto: '%s' is null", tensors == NULL ? "tensors" : "tensorSpec");
  else if (tensors->pending)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_borrowTensorInto: 'tensors' are the outputs of a call");
  else if (einkorn_dtype_bits(tensorSpec->dtype) == 0)
    fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0452]: tensor '%s' has the dtype %d, which models do not have",
         tensorSpec->name, (int)tensorSpec->dtype);
  else if (!count_elements(tensorSpec, &count, &bytes))
    fail(status, EINKORN_WRONG_SIZE, "error[EK0454]: tensor '%s' has open, negative or too large sizes",
         tensorSpec->name);
  else if (input == NULL && bytes > 0)
    fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0452]: '%s' is a null pointer, and has elements", tensorSpec->name);
  else if (!add_tensor(tensors, new_tensor(copy_spec(tensorSpec), input, NULL)))
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  else
    succeed(status);
}

M_AsyncTensor *M_getTensorByNameFrom(M_AsyncTensorMap *tensorMap, const char *name, M_Status *status) {
  if (tensorMap == NULL || name == NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "M_getTensorByNameFrom: '%s' is null", name == NULL ? "name" : "tensorMap");
    return NULL;
  }
  M_Status ready = {0, NULL};
  if (tensorMap->pending) task_wait(&tensorMap->task, &ready);
  M_AsyncTensor *tensor = NULL;
  const M_AsyncTensor *known = find_tensor(tensorMap, name);
  if (ready.code != 0)
    copy_status(status, &ready);
  else if (known == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "there is no tensor '%s' among the %zu of the map", name, tensorMap->count);
  else if ((tensor = share_tensor(known)) == NULL)
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  else
    succeed(status);
  succeed(&ready);
  return tensor;
}

void M_freeAsyncTensorMap(M_AsyncTensorMap *tensorMap) {
  if (tensorMap == NULL) return;
  if (tensorMap->pending) {
    if (!task_end(&tensorMap->task)) return;
    M_freeModel(tensorMap->model);
    M_freeAsyncTensorMap(tensorMap->inputs);
  }
  for (size_t k = 0; k < tensorMap->count; k++) M_freeTensor(tensorMap->tensors[k]);
  free(tensorMap->tensors);
  free(tensorMap);
}

/* *** weights *** */

M_WeightsRegistry *einkorn_new_weights(void) { return calloc(1, sizeof(M_WeightsRegistry)); }

void einkorn_set_weight(M_WeightsRegistry *weights, const char *name, const void *memory, M_Status *status) {
  if (weights == NULL || name == NULL || memory == NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "einkorn_set_weight: '%s' is null",
         weights == NULL ? "weights" : name == NULL ? "name" : "memory");
    return;
  }
  char *copy = strdup(name);
  if (copy == NULL || !grow((void **)&weights->weights, weights->count, &weights->room, sizeof *weights->weights)) {
    free(copy);
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return;
  }
  weights->weights[weights->count++] = (struct weight){copy, memory};
  succeed(status);
}

M_WeightsRegistry *copy_weights(const M_WeightsRegistry *weights) {
  M_WeightsRegistry *copy = einkorn_new_weights();
  M_Status status = {0, NULL};
  for (size_t k = 0; copy != NULL && k < weights->count && status.code == 0; k++)
    einkorn_set_weight(copy, weights->weights[k].name, weights->weights[k].memory, &status);
  if (status.code != 0) {
    einkorn_free_weights(copy);
    copy = NULL;
  }
  succeed(&status);
  return copy;
}

void einkorn_free_weights(M_WeightsRegistry *weights) {
  if (weights == NULL) return;
  for (size_t k = 0; k < weights->count; k++) free(weights->weights[k].name);
  free(weights->weights);
  free(weights);
}
