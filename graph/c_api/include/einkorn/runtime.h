/* The whole C API, and what only Einkorn has: linked models, files with several models, files in memory, the trust policy,
   weights that the program gives, the names and specs of a model, status codes, properties of dtypes. */
#ifndef EINKORN_RUNTIME_H
#define EINKORN_RUNTIME_H
#include "einkorn/export.h"
#include "max/c/common.h"
#include "max/c/context.h"
#include "max/c/model.h"
#include "max/c/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

EINKORN_API int32_t einkorn_status_code(const M_Status *status);
EINKORN_API void einkorn_set_model(M_CompileConfig *config, const einkorn_model *model);
EINKORN_API void einkorn_set_model_name(M_CompileConfig *config, const char *name);
EINKORN_API void einkorn_set_model_memory(M_CompileConfig *config, const void *memory, size_t size);
EINKORN_API void einkorn_set_trust(M_RuntimeConfig *config, const char *path);
EINKORN_API void einkorn_set_log(M_RuntimeConfig *config, void (*log)(void *user, const char *text), void *user);
EINKORN_API void einkorn_set_allocator(M_RuntimeConfig *config, void *(*allocate)(void *user, size_t alignment, size_t size),
                                       void (*release)(void *user, void *memory), void *user);
EINKORN_API const einkorn_model *einkorn_model_of(const M_AsyncCompiledModel *compiled, M_Status *status);
EINKORN_API M_TensorSpec *einkorn_input_spec(const M_AsyncCompiledModel *compiled, const char *name, M_Status *status);
EINKORN_API M_TensorSpec *einkorn_output_spec(const M_AsyncCompiledModel *compiled, const char *name, M_Status *status);
EINKORN_API size_t einkorn_name_count(const M_TensorNameArray *names);
EINKORN_API const char *einkorn_name_at(const M_TensorNameArray *names, size_t index);
EINKORN_API M_WeightsRegistry *einkorn_new_weights(void);
EINKORN_API void einkorn_set_weight(M_WeightsRegistry *weights, const char *name, const void *memory, M_Status *status);
EINKORN_API void einkorn_free_weights(M_WeightsRegistry *weights);
EINKORN_API const char *einkorn_dtype_name(M_Dtype dtype);
EINKORN_API size_t einkorn_dtype_bits(M_Dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
