/* Models: loading, initialising, executing, capturing and replaying. */
#ifndef MAX_C_MODEL_H
#define MAX_C_MODEL_H
#include "max/c/types.h"
#ifdef __cplusplus
extern "C" {
#endif

/* *** Loading *** */

/* Returns a new configuration of one model, or NULL where there is no memory. M_compileModel and M_compileModelSync free
   it; M_freeCompileConfig frees one that neither was given. */
EINKORN_API M_CompileConfig *M_newCompileConfig(void);

/* Names the file of the model, which `model.export("model.so")` or `model.export("model.pkg")` wrote in Python. The path
   is copied. The file is opened when the model is loaded. */
EINKORN_API void M_setModelPath(M_CompileConfig *compileConfig, const char *path);

/* Frees a configuration that was not loaded. NULL is ignored. */
EINKORN_API void M_freeCompileConfig(M_CompileConfig *config);

/* Begins to load a model in a thread of its own, and returns at once. The configuration is freed, and the pointer to it
   becomes NULL. Returns NULL and a failure where an argument is NULL, where the configuration has no model, or where
   there is no memory. What is wrong with the file is reported by M_waitForCompilation, and by every function that needs
   the model. M_freeCompiledModel frees the result. */
EINKORN_API M_AsyncCompiledModel *M_compileModel(const M_RuntimeContext *context, M_CompileConfig **compileConfig,
                                                 M_Status *status);

/* Loads a model as M_compileModel does, but in this thread. Returns NULL where that fails: no such file (status -101), a
   file that is not an exported model or is damaged (-102), a package that the trust policy refuses (-9), a processor
   below the lowest level of the code (-6), a file of several models where none was chosen. */
EINKORN_API M_AsyncCompiledModel *M_compileModelSync(const M_RuntimeContext *context, M_CompileConfig **compileConfig,
                                                     M_Status *status);

/* Waits until the model is loaded or has failed to load, and writes the result into `status`. */
EINKORN_API void M_waitForCompilation(M_AsyncCompiledModel *compiledModel, M_Status *status);

/* Frees a loaded model. Models that were initialised from it stay valid; the file is unloaded with the last of them. A
   load that still runs is waited for. NULL is ignored. */
EINKORN_API void M_freeCompiledModel(M_AsyncCompiledModel *model);

/* *** Names *** */

/* Returns the names of the inputs, in the order of the model's. It waits until the model is loaded. Returns NULL and a
   failure where it was not loaded. M_freeTensorNameArray frees the names. */
EINKORN_API M_TensorNameArray *M_getInputNames(const M_AsyncCompiledModel *model, M_Status *status);

/* Returns the names of the outputs, as M_getInputNames does. */
EINKORN_API M_TensorNameArray *M_getOutputNames(const M_AsyncCompiledModel *model, M_Status *status);

/* *** Initialising *** */

/* Begins to make a model that can be executed, and returns at once. `weightsRegistry` is copied; it is NULL for models
   that have their weights. Returns NULL and a failure where another argument is NULL or there is no memory. What is
   wrong with a weight (error EK0433) is reported by M_waitForModel and by calls. M_freeModel frees the result. */
EINKORN_API M_AsyncModel *M_initModel(const M_RuntimeContext *context, const M_AsyncCompiledModel *compiledModel,
                                      const M_WeightsRegistry *weightsRegistry, M_Status *status);

/* Waits until the model can be executed or has failed, and writes the result into `status`. */
EINKORN_API void M_waitForModel(M_AsyncModel *model, M_Status *status);

/* Frees a model and its captures. Outputs stay valid. NULL is ignored. */
EINKORN_API void M_freeModel(M_AsyncModel *model);

/* *** Executing *** */

/* Begins to execute the model in a thread of its own, and returns the map that the outputs come into. The tensors of
   `inputs` are held, so that the map may be freed; borrowed memory must stay valid until the call has ended. Where the
   inputs are outputs of a call that still runs, that call is waited for first. Returns NULL and a failure where an
   argument is NULL or there is no memory; M_waitForTensors and M_getTensorByNameFrom report what fails in the call.
   M_freeAsyncTensorMap frees the map, and waits for the call. */
EINKORN_API M_AsyncTensorMap *M_executeModel(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                             M_AsyncTensorMap *inputs, M_Status *status);

/* Executes the model and returns its outputs, in memory of their own, under their names. Returns NULL and a failure
   where an input is missing (EK0451) or has no place (EK0469), has another dtype (EK0452), rank or size (EK0454) or is
   not aligned (EK0464), where there is no memory, and where a kernel stops itself. M_freeAsyncTensorMap frees the map. */
EINKORN_API M_AsyncTensorMap *M_executeModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                                 M_AsyncTensorMap *inputs, M_Status *status);

/* Waits until the call whose outputs the map holds has ended, and writes its result into `status`. A map that no call
   fills is always ready. */
EINKORN_API void M_waitForTensors(M_AsyncTensorMap *tensors, M_Status *status);

/* *** Capturing and replaying *** */

/* Executes the model and keeps the call under a key: its sizes, its plan, its workspace, and the addresses of inputs and
   outputs. `inputs` are in the order of the model's inputs, `numGraphKeys` is 1. Returns an array of the outputs and
   writes their number; the caller frees each by M_freeTensor and the array by `free`. Returns NULL and a failure where
   M_executeModelSync would, and for models that compute sizes of their outputs. A second capture under a key replaces
   the first. Captures are freed with the model. */
EINKORN_API M_AsyncTensor **M_captureModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                               const uint64_t *graphKeys, size_t numGraphKeys,
                                               M_AsyncTensor *const *inputs, size_t numInputs, size_t *numOutputs,
                                               M_Status *status);

/* Executes a captured call again: it reads the inputs and writes the outputs where they were when the call was captured.
   Fails where there is no capture under the key, where another thread replays it, or where an input has another dtype,
   shape or address than the captured one. */
EINKORN_API void M_replayModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                   const uint64_t *graphKeys, size_t numGraphKeys, M_AsyncTensor *const *inputs,
                                   size_t numInputs, M_Status *status);

/* Executes the model without the capture, into other memory, and compares sizes, plan and addresses with those of the
   capture. Fails where they differ, and where M_replayModelSync would. */
EINKORN_API void M_debugVerifyReplayModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                              const uint64_t *graphKeys, size_t numGraphKeys,
                                              M_AsyncTensor *const *inputs, size_t numInputs, M_Status *status);

#ifdef __cplusplus
}
#endif
#endif
