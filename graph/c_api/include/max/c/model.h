/* Models: loading, initialising, executing. */
#ifndef MAX_C_MODEL_H
#define MAX_C_MODEL_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

EINKORN_API M_CompileConfig *M_newCompileConfig(void);
EINKORN_API void M_setModelPath(M_CompileConfig *compileConfig, const char *path);
EINKORN_API void M_freeCompileConfig(M_CompileConfig *config);
EINKORN_API M_AsyncCompiledModel *M_compileModel(const M_RuntimeContext *context, M_CompileConfig **compileConfig,
                                                 M_Status *status);
EINKORN_API M_AsyncCompiledModel *M_compileModelSync(const M_RuntimeContext *context, M_CompileConfig **compileConfig,
                                                     M_Status *status);
EINKORN_API void M_waitForCompilation(M_AsyncCompiledModel *compiledModel, M_Status *status);
EINKORN_API M_TensorNameArray *M_getInputNames(const M_AsyncCompiledModel *model, M_Status *status);
EINKORN_API M_TensorNameArray *M_getOutputNames(const M_AsyncCompiledModel *model, M_Status *status);
EINKORN_API void M_freeCompiledModel(M_AsyncCompiledModel *model);
EINKORN_API M_AsyncModel *M_initModel(const M_RuntimeContext *context, const M_AsyncCompiledModel *compiledModel,
                                      const M_WeightsRegistry *weightsRegistry, M_Status *status);
EINKORN_API void M_waitForModel(M_AsyncModel *model, M_Status *status);
EINKORN_API M_AsyncTensorMap *M_executeModel(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                             M_AsyncTensorMap *inputs, M_Status *status);
EINKORN_API M_AsyncTensorMap *M_executeModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                                 M_AsyncTensorMap *inputs, M_Status *status);
EINKORN_API M_AsyncTensor **M_captureModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                               const uint64_t *graphKeys, size_t numGraphKeys,
                                               M_AsyncTensor *const *inputs, size_t numInputs, size_t *numOutputs,
                                               M_Status *status);
EINKORN_API void M_replayModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                   const uint64_t *graphKeys, size_t numGraphKeys, M_AsyncTensor *const *inputs,
                                   size_t numInputs, M_Status *status);
EINKORN_API void M_debugVerifyReplayModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                              const uint64_t *graphKeys, size_t numGraphKeys,
                                              M_AsyncTensor *const *inputs, size_t numInputs, M_Status *status);
EINKORN_API void M_waitForTensors(M_AsyncTensorMap *tensors, M_Status *status);
EINKORN_API void M_freeModel(M_AsyncModel *model);

#ifdef __cplusplus
}
#endif
#endif
