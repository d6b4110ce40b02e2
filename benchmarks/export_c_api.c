// Times the C API with a model of one vector: executions, replays, and the model's own function with a prepared plan.
//
//     export_c_api LIBRARY CALLS
#include "einkorn/runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int calls = atoi(arguments[2]);
  M_Status *status = M_newStatus();
  M_RuntimeConfig *options = M_newRuntimeConfig();
  M_setNumThreads(options, 1);
  M_RuntimeContext *context = M_newRuntimeContext(options, status);
  M_CompileConfig *config = M_newCompileConfig();
  M_setModelPath(config, arguments[1]);
  M_AsyncCompiledModel *compiled = M_compileModelSync(context, &config, status);
  M_AsyncModel *model = M_initModel(context, compiled, NULL, status);
  M_waitForModel(model, status);
  static float x[64] __attribute__((aligned(64))), y[64] __attribute__((aligned(64)));
  int64_t shape[1] = {64};
  M_TensorSpec *spec = M_newTensorSpec(shape, 1, M_FLOAT32, "x", NULL);
  M_AsyncTensorMap *inputs = M_newAsyncTensorMap(context);
  M_borrowTensorInto(inputs, x, spec, status);
  if (M_isError(status)) {
    fprintf(stderr, "%s\n", M_getError(status));
    return 1;
  }
  double begin = now();
  for (int k = 0; k < calls; k++) M_freeAsyncTensorMap(M_executeModelSync(context, model, inputs, status));
  double execute = (now() - begin) / calls;

  M_AsyncTensor *given[1] = {M_getTensorByNameFrom(inputs, "x", status)};
  uint64_t key = 1;
  size_t outputs = 0;
  if (M_captureModelSync(context, model, &key, 1, given, 1, &outputs, status) == NULL) return 3;
  begin = now();
  for (int k = 0; k < calls; k++) M_replayModelSync(context, model, &key, 1, given, 1, status);
  double replay = (now() - begin) / calls;

  const einkorn_model *own = einkorn_model_of(compiled, status);
  void *plan = malloc((size_t)own->plan_bytes), *tensors[2] = {x, y};
  int64_t sizes[1] = {64};
  if (own->prepare(sizes, plan, NULL)) return 4;
  begin = now();
  for (int k = 0; k < calls; k++) own->run(plan, tensors, NULL, NULL);
  double kernels = (now() - begin) / calls;
  if (M_isError(status)) return 5;
  printf("{\"execute\": %f, \"replay\": %f, \"kernels\": %f}\n", execute, replay, kernels);
  return 0;
}
