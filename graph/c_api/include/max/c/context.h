/* Devices, configurations of the runtime, and contexts. */
#ifndef MAX_C_CONTEXT_H
#define MAX_C_CONTEXT_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

/* *** Devices *** */

/* Returns a new device, which M_freeDevice frees. The host is the only one: `type` is M_HOST and `id` is 0. Returns NULL
   and error EK0430 for any other. */
EINKORN_API M_Device *M_newDevice(M_DeviceType type, int id, M_Status *status);

/* Frees a device. NULL is ignored. */
EINKORN_API void M_freeDevice(M_Device *device);

/* *** Configurations *** */

/* Returns a new configuration, or NULL where there is no memory. M_freeRuntimeConfig frees it. */
EINKORN_API M_RuntimeConfig *M_newRuntimeConfig(void);

/* Sets how many threads take part in a call; 0, the default, stands for one per processor. The number holds for all
   models of a file. It changes nothing for models that are linked into the program, which have NAME_set_threads, and for
   files that were exported without threads. */
EINKORN_API void M_setNumThreads(M_RuntimeConfig *config, size_t threads);

/* Changes nothing: every context has the host, which is the only device. The device stays the caller's. */
EINKORN_API void M_runtimeConfigAddDevice(M_RuntimeConfig *config, M_Device *device);

/* Frees a configuration. Contexts that were made from it keep their settings. NULL is ignored. */
EINKORN_API void M_freeRuntimeConfig(M_RuntimeConfig *config);

/* *** Contexts *** */

/* Returns a new context with the settings of `config`, which are copied. M_freeRuntimeContext frees it. Returns NULL and
   a failure where `config` is NULL, where einkorn_set_allocator was given one function without the other, or where there
   is no memory. */
EINKORN_API M_RuntimeContext *M_newRuntimeContext(const M_RuntimeConfig *config, M_Status *status);

/* Frees a context. Models that were made in it stay valid. NULL is ignored. */
EINKORN_API void M_freeRuntimeContext(M_RuntimeContext *context);

/* Changes nothing: the C API prints no tensors. */
EINKORN_API void M_setDebugPrintOptions(M_RuntimeContext *context, M_ResultOutputStyle style, unsigned int precision,
                                        const char *directory);

/* Changes nothing: models are compiled before they are loaded. */
EINKORN_API void M_setMojoDefineBool(M_RuntimeContext *context, const char *key, bool value);

/* Changes nothing: models are compiled before they are loaded. */
EINKORN_API void M_setMojoDefineInt(M_RuntimeContext *context, const char *key, int value);

/* Changes nothing: models are compiled before they are loaded. */
EINKORN_API void M_setMojoDefineString(M_RuntimeContext *context, const char *key, const char *value);

#ifdef __cplusplus
}
#endif
#endif
