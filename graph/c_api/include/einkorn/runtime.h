/* All headers of the C API, and the functions that only Einkorn has: linked models, files of several models, files in
   memory, the trust policy, the log, the allocator, weights that the program gives, specs of a model, status codes,
   properties of dtypes. */
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

/* *** Statuses *** */

/* Returns 0 after a success. After a failure it returns the status of the exported function (above 0 where a kernel
   stopped itself, -2 to -8 as EINKORN_NO_MEMORY and the others), or -9 where a package is not trusted, -100 where
   something is not supported, -101 where there is no such file, -102 where the file is a wrong one. */
EINKORN_API int32_t einkorn_status_code(const M_Status *status);

/* *** Settings of a context *** */

/* Names the trust policy for packages, which is read whenever a package is loaded. The path is copied. With NULL, the
   default, the policy is the one that the environment variable EINKORN_TRUST names, or else the user's. */
EINKORN_API void einkorn_set_trust(M_RuntimeConfig *config, const char *path);

/* Calls `log` for warnings of the policy, from the thread that loads. `text` is valid during the call. With NULL, the
   default, warnings are lines on the standard error output. */
EINKORN_API void einkorn_set_log(M_RuntimeConfig *config, void (*log)(void *user, const char *text), void *user);

/* Takes the memory of outputs, of copies of them and of workspaces from `allocate`, and gives it back by `release`, from
   any thread. `alignment` is 64, `size` is a multiple of it, and NULL says that there is no memory. Outputs may outlive
   their context: the functions have to be callable until the last output is freed. With both NULL, the default, the
   memory is the C library's; with one NULL, M_newRuntimeContext fails. Records of the API, and workspaces of models that
   compute sizes, are always the C library's. */
EINKORN_API void einkorn_set_allocator(M_RuntimeConfig *config, void *(*allocate)(void *user, size_t alignment, size_t size),
                                       void (*release)(void *user, void *memory), void *user);

/* *** Sources of models *** */

/* Uses a model that is linked into the program, such as `&attn_model` of `attn.o`, in place of a file. */
EINKORN_API void einkorn_set_model(M_CompileConfig *config, const einkorn_model *model);

/* Chooses one of several models: in an exported file by the name that begins its functions, in a package by the name of
   the graph. The name is copied. */
EINKORN_API void einkorn_set_model_name(M_CompileConfig *config, const char *name);

/* Uses a file that is in memory, in place of a path. The memory stays the caller's, and valid as long as the model:
   weights of packages are used where they are, if that is at a multiple of 64 bytes. A path that is also set only names
   the file, in messages and in policies. */
EINKORN_API void einkorn_set_model_memory(M_CompileConfig *config, const void *memory, size_t size);

/* *** What a model is *** */

/* Returns the descriptor of the model, which is valid as long as `compiled`. It waits until the model is loaded. Returns
   NULL and a failure where it was not loaded. */
EINKORN_API const einkorn_model *einkorn_model_of(const M_AsyncCompiledModel *compiled, M_Status *status);

/* Returns the spec of an input, which M_freeTensorSpec frees. Sizes that calls decide are kDynamicDimensionValue. It
   waits until the model is loaded. Returns NULL and a failure where it was not loaded or has no such input (EK0469). */
EINKORN_API M_TensorSpec *einkorn_input_spec(const M_AsyncCompiledModel *compiled, const char *name, M_Status *status);

/* Returns the spec of an output, as einkorn_input_spec does. */
EINKORN_API M_TensorSpec *einkorn_output_spec(const M_AsyncCompiledModel *compiled, const char *name, M_Status *status);

/* Returns how many names there are. */
EINKORN_API size_t einkorn_name_count(const M_TensorNameArray *names);

/* Returns one of the names, which the array owns, or NULL where `index` is not below the count. */
EINKORN_API const char *einkorn_name_at(const M_TensorNameArray *names, size_t index);

/* *** Weights *** */

/* Returns a new registry of weights, for models that were exported with `weights="given"`, or NULL where there is no
   memory. einkorn_free_weights frees it. */
EINKORN_API M_WeightsRegistry *einkorn_new_weights(void);

/* Sets the address of a weight. The name is copied. The memory stays the caller's, and valid as long as the model. Fails
   where an argument is NULL or there is no memory; a name that the model does not have is reported by M_waitForModel. */
EINKORN_API void einkorn_set_weight(M_WeightsRegistry *weights, const char *name, const void *memory, M_Status *status);

/* Frees a registry; models that were initialised with it have a copy. NULL is ignored. */
EINKORN_API void einkorn_free_weights(M_WeightsRegistry *weights);

/* *** Dtypes *** */

/* Returns the name of a dtype, such as "float32", or "unknown" for one that models do not have. The text is constant. */
EINKORN_API const char *einkorn_dtype_name(M_Dtype dtype);

/* Returns the bits of an element, or 0 for a dtype that models do not have. */
EINKORN_API size_t einkorn_dtype_bits(M_Dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
