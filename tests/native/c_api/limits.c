/* What the C API says of weights that are partly missing and of packages for another processor, and what a child process
   may do with the models of its parent. Models come from tests/native/test_c_api.py: attn.so, pair.so, foreign.pkg. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

static float x[300 * 70], w[70 * 90];

static M_AsyncCompiledModel *compiled_from(const char *path) {
  M_CompileConfig *config = M_newCompileConfig();
  M_setModelPath(config, path);
  return M_compileModelSync(context, &config, status);
}

/* Every weight that is missing is named, one after the other; a model that failed runs when they are there. */
static void weights_are_missing(const char *path) {
  static float first[7 * 7], second[7 * 7];
  M_AsyncCompiledModel *compiled = compiled_from(path);
  FINE();
  M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
  borrow(map, "x", M_FLOAT32, x, 2, 5, 7);
  const char *expected[] = {"error[EK0433]: weight 'first' was not given", "error[EK0433]: weight 'second' was not given"};
  M_WeightsRegistry *weights = einkorn_new_weights();
  for (int k = 0; k < 3; k++) {
    if (k > 0) einkorn_set_weight(weights, k == 1 ? "first" : "second", k == 1 ? first : second, status);
    M_AsyncModel *model = M_initModel(context, compiled, weights, status);
    M_waitForModel(model, status);
    FINE();
    M_AsyncTensorMap *outputs = M_executeModelSync(context, model, map, status);
    if (k < 2) {
      CHECK(outputs == NULL);
      REFUSED(expected[k]);
    } else {
      FINE();
    }
    M_freeAsyncTensorMap(outputs);
    M_freeModel(model);
  }
  einkorn_set_weight(weights, "second", (char *)second + 1, status);
  M_AsyncModel *model = M_initModel(context, compiled, weights, status);
  M_waitForModel(model, status);
  REFUSED("weight 'second': error[EK0433]: weight 'second' lies at");
  M_freeModel(model);
  einkorn_free_weights(weights);
  M_freeAsyncTensorMap(map);
  M_freeCompiledModel(compiled);
}

static void another_processor(const char *path) {
  CHECK(compiled_from(path) == NULL);
  REFUSED("is for another processor");
}

static long call(M_AsyncModel *model, float *y) {
  M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
  borrow(map, "x", M_FLOAT32, x, 2, 300, 70);
  borrow(map, "w", M_FLOAT32, w, 2, 70, 90);
  M_AsyncTensorMap *outputs = M_executeModelSync(context, model, map, status);
  FINE();
  M_AsyncTensor *tensor = M_getTensorByNameFrom(outputs, "y", status);
  long bytes = (long)(M_getTensorNumElements(tensor) * sizeof *y);
  memcpy(y, M_getTensorData(tensor), (size_t)bytes);
  M_freeTensor(tensor);
  M_freeAsyncTensorMap(outputs);
  M_freeAsyncTensorMap(map);
  return bytes;
}

/* A child executes, loads and frees; what it was to wait for in the parent is done, or a status says that it is not. */
static void after_a_fork(const char *path) {
  static float expected[300 * 90], found[300 * 90];
  M_AsyncCompiledModel *compiled = compiled_from(path);
  FINE();
  M_AsyncModel *model = M_initModel(context, compiled, NULL, status);
  M_waitForModel(model, status);
  FINE();
  long bytes = call(model, expected);
  M_CompileConfig *config = M_newCompileConfig();
  M_setModelPath(config, path);
  M_AsyncCompiledModel *pending = M_compileModel(context, &config, status);
  pid_t child = fork();
  if (child == 0) {
    failures = 0;
    alarm(120);
    for (int k = 0; k < 3; k++) CHECK(call(model, found) == bytes && memcmp(found, expected, (size_t)bytes) == 0);
    M_waitForCompilation(pending, status);
    if (M_isError(status)) REFUSED("before a fork");
    M_freeCompiledModel(pending);
    M_AsyncCompiledModel *own = compiled_from(path);
    FINE();
    M_AsyncModel *second = M_initModel(context, own, NULL, status);
    M_waitForModel(second, status);
    CHECK(call(second, found) == bytes && memcmp(found, expected, (size_t)bytes) == 0);
    M_freeModel(second);
    M_freeCompiledModel(own);
    M_freeModel(model);
    M_freeCompiledModel(compiled);
    M_freeRuntimeContext(context);
    _exit(failures != 0);
  }
  int state = 1;
  CHECK(child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0);
  M_waitForCompilation(pending, status);
  FINE();
  M_freeCompiledModel(pending);
  CHECK(call(model, found) == bytes && memcmp(found, expected, (size_t)bytes) == 0);
  M_freeModel(model);
  M_freeCompiledModel(compiled);
}

int main(int count, char **paths) {
  if (count != 4) return 2;
  for (int k = 0; k < 300 * 70; k++) x[k] = 0.001f * (float)(k % 97);
  for (int k = 0; k < 70 * 90; k++) w[k] = 0.5f - 0.02f * (float)(k % 53);
  status = M_newStatus();
  M_RuntimeConfig *config = M_newRuntimeConfig();
  M_setNumThreads(config, 2);
  context = M_newRuntimeContext(config, status);
  M_freeRuntimeConfig(config);
  weights_are_missing(paths[2]);
  another_processor(paths[3]);
  for (int k = 0; k < 5; k++) after_a_fork(paths[1]);
  M_freeRuntimeContext(context);
  M_freeStatus(status);
  return failures != 0;
}
