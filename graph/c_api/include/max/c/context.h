/* Devices, the configuration of the runtime, and contexts. */
#ifndef MAX_C_CONTEXT_H
#define MAX_C_CONTEXT_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

EINKORN_API M_Device *M_newDevice(M_DeviceType type, int id, M_Status *status);
EINKORN_API void M_freeDevice(M_Device *device);
EINKORN_API M_RuntimeConfig *M_newRuntimeConfig(void);
EINKORN_API void M_setNumThreads(M_RuntimeConfig *config, size_t threads);
EINKORN_API void M_runtimeConfigAddDevice(M_RuntimeConfig *config, M_Device *device);
EINKORN_API void M_freeRuntimeConfig(M_RuntimeConfig *config);
EINKORN_API M_RuntimeContext *M_newRuntimeContext(const M_RuntimeConfig *config, M_Status *status);
EINKORN_API void M_freeRuntimeContext(M_RuntimeContext *context);
EINKORN_API void M_setDebugPrintOptions(M_RuntimeContext *context, M_ResultOutputStyle style, unsigned int precision,
                                        const char *directory);
EINKORN_API void M_setMojoDefineBool(M_RuntimeContext *context, const char *key, bool value);
EINKORN_API void M_setMojoDefineInt(M_RuntimeContext *context, const char *key, int value);
EINKORN_API void M_setMojoDefineString(M_RuntimeContext *context, const char *key, const char *value);

#ifdef __cplusplus
}
#endif
#endif
