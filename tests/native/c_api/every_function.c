/* Calls every function of the C API; the models come from tests/native/test_c_api.py.
   Prints the results' bytes, which the test compares with Python's. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "checks.h"

extern const einkorn_model linked_model;

static M_CompileConfig *config_of(const char *path, const char *name) {
  M_CompileConfig *config = M_newCompileConfig();
  M_setModelPath(config, path);
  einkorn_set_model_name(config, name);
  return config;
}

static M_AsyncModel *loaded(const char *path, const char *name) {
  M_CompileConfig *config = config_of(path, name);
  M_AsyncCompiledModel *compiled = M_compileModelSync(context, &config, status);
  FINE();
  CHECK(config == NULL && compiled != NULL);
  M_AsyncModel *model = M_initModel(context, compiled, NULL, status);
  FINE();
  M_freeCompiledModel(compiled); /* the model keeps what it needs */
  return model;
}

static void show(M_AsyncTensorMap *map, const char *name) {
  M_AsyncTensor *tensor = M_getTensorByNameFrom(map, name, status);
  FINE();
  M_TensorSpec *spec = M_getTensorSpec(tensor);
  size_t bytes = M_getTensorNumElements(tensor) * einkorn_dtype_bits(M_getTensorType(tensor)) / 8;
  printf("tensor %s %s", M_getName(spec), einkorn_dtype_name(M_getDtype(spec)));
  for (int64_t k = 0; k < M_getRank(spec); k++) printf(" %lld", (long long)M_getDimAt(spec, (size_t)k));
  printf(" ");
  for (size_t k = 0; k < bytes; k++) printf("%02x", ((const unsigned char *)M_getTensorData(tensor))[k]);
  printf("\n");
  M_freeTensorSpec(spec);
  M_freeTensor(tensor);
}

static float x[10 * 7], w[7 * 9];

static M_AsyncTensorMap *inputs_of(int64_t b, int64_t k, int64_t n) {
  M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
  borrow(map, "x", M_FLOAT32, x, 2, b, k);
  FINE();
  borrow(map, "w", M_FLOAT32, w, 2, k, n);
  FINE();
  return map;
}

static void nothing_is_null_safe(void) {
  M_freeStatus(NULL);
  M_freeDevice(NULL);
  M_freeRuntimeConfig(NULL);
  M_freeRuntimeContext(NULL);
  M_freeCompileConfig(NULL);
  M_freeCompiledModel(NULL);
  M_freeModel(NULL);
  M_freeTensorSpec(NULL);
  M_freeTensor(NULL);
  M_freeAsyncTensorMap(NULL);
  M_freeTensorNameArray(NULL);
  einkorn_free_weights(NULL);
  M_setNumThreads(NULL, 1);
  M_setModelPath(NULL, "x");
  einkorn_set_model(NULL, NULL);
  einkorn_set_model_name(NULL, "x");
  einkorn_set_model_memory(NULL, x, 1);
  einkorn_set_trust(NULL, "x");
  einkorn_set_log(NULL, NULL, NULL);
  einkorn_set_allocator(NULL, NULL, NULL, NULL);
  CHECK(M_captureModelSync(context, NULL, NULL, 0, NULL, 0, NULL, status) == NULL);
  REFUSED("'initializedModel' is null");
  M_runtimeConfigAddDevice(NULL, NULL);
  CHECK(!M_isError(NULL) && einkorn_status_code(NULL) == 0 && M_getError(NULL)[0] == 0);
  CHECK(M_getRank(NULL) == 0 && M_getDimAt(NULL, 0) == 0 && M_getDtype(NULL) == M_UNKNOWN && M_getName(NULL) == NULL);
  CHECK(!M_isDynamicRanked(NULL) && M_getDeviceTypeFromSpec(NULL) == M_HOST && M_getDeviceIdFromSpec(NULL) == 0);
  CHECK(M_getTensorNumElements(NULL) == 0 && M_getTensorType(NULL) == M_UNKNOWN && M_getTensorData(NULL) == NULL);
  CHECK(M_getTensorSpec(NULL) == NULL && M_getTensorDevice(NULL) == NULL);
  CHECK(einkorn_name_count(NULL) == 0 && einkorn_name_at(NULL, 0) == NULL);
  CHECK(M_newRuntimeContext(NULL, status) == NULL);
  REFUSED("'config' is null");
  CHECK(M_compileModel(NULL, NULL, status) == NULL);
  REFUSED("'context' is null");
  CHECK(M_compileModelSync(context, NULL, status) == NULL);
  REFUSED("'compileConfig' is null");
  CHECK(M_initModel(context, NULL, NULL, status) == NULL);
  REFUSED("'compiledModel' is null");
  M_waitForCompilation(NULL, status);
  REFUSED("null");
  M_waitForModel(NULL, status);
  REFUSED("'model' is null");
  M_waitForTensors(NULL, status);
  REFUSED("'tensors' is null");
  CHECK(M_executeModelSync(context, NULL, NULL, status) == NULL);
  REFUSED("'initializedModel' is null");
  CHECK(M_executeModel(NULL, NULL, NULL, status) == NULL);
  REFUSED("'context' is null");
  M_borrowTensorInto(NULL, x, NULL, status);
  REFUSED("'tensors' is null");
  CHECK(M_getTensorByNameFrom(NULL, "x", status) == NULL);
  REFUSED("'tensorMap' is null");
  CHECK(M_copyTensorToDevice(NULL, NULL, status) == NULL);
  REFUSED("'tensor' is null");
  CHECK(M_getInputNames(NULL, status) == NULL && M_getOutputNames(NULL, status) == NULL);
  REFUSED("the model is null");
  CHECK(einkorn_model_of(NULL, status) == NULL && einkorn_input_spec(NULL, "x", status) == NULL);
  CHECK(einkorn_output_spec(NULL, "x", status) == NULL);
  REFUSED("the model is null");
  einkorn_set_weight(NULL, "w", x, status);
  REFUSED("'weights' is null");
}

static void wrong_inputs_are_refused(M_AsyncModel *model) {
  M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
  borrow(map, "x", M_FLOAT32, NULL, 2, 5, 7);
  REFUSED("error[EK0452]: 'x' is a null pointer, and has elements");
  borrow(map, "x", M_FLOAT32, x, 2, 5, -7);
  REFUSED("EK0454");
  borrow(map, "x", M_FLOAT32, x, 2, INT64_MAX, INT64_MAX);
  REFUSED("EK0454");
  borrow(map, "x", M_INT128, x, 2, 5, 7);
  REFUSED("EK0452");
  borrow(map, "x", M_FLOAT32, x, kDynamicRankValue, 0, 0);
  REFUSED("EK0454");
  borrow(map, "x", M_FLOAT32, x, 2, 5, 7);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("error[EK0451]: input 'w' of model 'attn' is missing");
  borrow(map, "w", M_FLOAT64, w, 2, 7, 2);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("error[EK0452]: input 'w' is float64, not float32");
  borrow(map, "w", M_FLOAT32, w, 1, 7, 0);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("error[EK0454]: input 'w' has 1 axes, not 2");
  borrow(map, "w", M_FLOAT32, w, 2, 6, 2);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("error[EK0454]: axis 0 of input 'w' is 6, not k = 7");
  borrow(map, "w", M_FLOAT32, (char *)w + 1, 2, 7, 2);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("error[EK0464]");
  borrow(map, "w", M_FLOAT32, w, 2, 7, 2);
  borrow(map, "z", M_FLOAT32, w, 2, 7, 2);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("error[EK0469]: model 'attn' has no input 'z'");
  CHECK(M_getTensorByNameFrom(map, "nothing", status) == NULL);
  REFUSED("there is no tensor 'nothing'");
  M_AsyncTensorMap *pending = M_executeModel(context, model, map, status);
  FINE();
  M_waitForTensors(pending, status);
  REFUSED("EK0469");
  CHECK(M_getTensorByNameFrom(pending, "y", status) == NULL);
  REFUSED("EK0469");
  M_borrowTensorInto(pending, x, NULL, status);
  REFUSED("'tensorSpec' is null");
  M_freeAsyncTensorMap(pending);
  M_freeAsyncTensorMap(map);
}

static void wrong_files_are_refused(int count, char **paths) {
  M_CompileConfig *config = M_newCompileConfig();
  CHECK(M_compileModelSync(context, &config, status) == NULL && config == NULL);
  REFUSED("call M_setModelPath first");
  for (int k = 0; k < count; k++) {
    config = config_of(paths[k], NULL);
    CHECK(M_compileModelSync(context, &config, status) == NULL && config == NULL);
    CHECK(M_isError(status));
    printf("refused %s\n", M_getError(status));
    config = config_of(paths[k], NULL);
    M_AsyncCompiledModel *compiled = M_compileModel(context, &config, status);
    FINE();
    M_AsyncModel *model = M_initModel(context, compiled, NULL, status); /* of a model that is still loading */
    FINE();
    M_waitForCompilation(compiled, status);
    CHECK(M_isError(status));
    M_waitForModel(model, status);
    CHECK(M_isError(status));
    M_AsyncTensorMap *map = inputs_of(1, 1, 1);
    CHECK(M_executeModelSync(context, model, map, status) == NULL && M_isError(status));
    CHECK(M_getInputNames(compiled, status) == NULL && M_isError(status));
    M_freeAsyncTensorMap(map);
    M_freeModel(model);
    M_freeCompiledModel(compiled);
  }
}

static void names_and_specs(const char *path) {
  M_CompileConfig *config = config_of(path, NULL);
  M_AsyncCompiledModel *compiled = M_compileModel(context, &config, status);
  FINE();
  M_waitForCompilation(compiled, status);
  FINE();
  M_TensorNameArray *names = M_getInputNames(compiled, status);
  CHECK(einkorn_name_count(names) == 2 && einkorn_name_at(names, 2) == NULL);
  CHECK(strcmp(einkorn_name_at(names, 0), "x") == 0 && strcmp(einkorn_name_at(names, 1), "w") == 0);
  M_freeTensorNameArray(names);
  names = M_getOutputNames(compiled, status);
  CHECK(einkorn_name_count(names) == 1 && strcmp(einkorn_name_at(names, 0), "y") == 0);
  M_freeTensorNameArray(names);
  CHECK(strcmp(einkorn_model_of(compiled, status)->name, "attn") == 0);
  M_TensorSpec *spec = einkorn_input_spec(compiled, "x", status);
  CHECK(M_getRank(spec) == 2 && M_getDimAt(spec, 0) == kDynamicDimensionValue && M_getDimAt(spec, 2) == 0);
  CHECK(M_getDtype(spec) == M_FLOAT32 && strcmp(M_getName(spec), "x") == 0 && !M_isDynamicRanked(spec));
  CHECK(M_getDeviceTypeFromSpec(spec) == M_HOST && M_getDeviceIdFromSpec(spec) == 0);
  M_freeTensorSpec(spec);
  spec = einkorn_output_spec(compiled, "y", status);
  CHECK(M_getRank(spec) == 2);
  M_freeTensorSpec(spec);
  CHECK(einkorn_input_spec(compiled, "y", status) == NULL);
  REFUSED("EK0469");
  spec = M_newTensorSpec(NULL, kDynamicRankValue, M_INT8, "r", NULL);
  CHECK(M_isDynamicRanked(spec) && M_getRank(spec) == kDynamicRankValue && M_getDimAt(spec, 0) == 0);
  M_freeTensorSpec(spec);
  M_freeCompiledModel(compiled);
}

static void tensors_outlive_their_map(M_AsyncModel *model) {
  M_AsyncTensorMap *map = inputs_of(10, 7, 9);
  M_AsyncTensorMap *outputs = M_executeModel(context, model, map, status);
  FINE();
  M_freeAsyncTensorMap(map);
  M_AsyncTensor *tensor = M_getTensorByNameFrom(outputs, "y", status); /* waits */
  FINE();
  M_waitForTensors(outputs, status);
  FINE();
  show(outputs, "y");
  M_freeAsyncTensorMap(outputs);
  CHECK(isfinite(((const float *)M_getTensorData(tensor))[69]));
  M_Device *device = M_getTensorDevice(tensor);
  M_AsyncTensor *copy = M_copyTensorToDevice(tensor, device, status);
  FINE();
  CHECK(memcmp(M_getTensorData(copy), M_getTensorData(tensor), 70 * 4) == 0);
  CHECK(M_getTensorData(copy) != M_getTensorData(tensor) && M_getTensorType(copy) == M_FLOAT32);
  CHECK(M_copyTensorToDevice(tensor, NULL, status) == NULL);
  REFUSED("'device' is null");
  M_freeDevice(device);
  M_freeTensor(tensor);
  M_freeTensor(copy);
}

/* Outputs of one call are the inputs of another, whether the first has ended or not. */
static void calls_are_chained(const char *path) {
  M_AsyncModel *first = loaded(path, "twice"), *second = loaded(path, "squared");
  M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
  borrow(map, "x", M_FLOAT32, x, 2, 5, 7);
  M_AsyncTensorMap *middle = M_executeModel(context, first, map, status);
  FINE();
  M_AsyncTensorMap *last = M_executeModel(context, second, middle, status);
  FINE();
  M_AsyncTensorMap *again = M_executeModelSync(context, second, middle, status);
  FINE();
  show(last, "y_2");
  show(again, "y_2");
  M_freeAsyncTensorMap(map);
  M_freeAsyncTensorMap(middle);
  M_freeAsyncTensorMap(last);
  M_freeAsyncTensorMap(again);
  M_freeModel(first);
  M_freeModel(second);
  M_CompileConfig *config = config_of(path, NULL);
  CHECK(M_compileModelSync(context, &config, status) == NULL);
  REFUSED("has 2 models: choose one");
  config = config_of(path, "third");
  CHECK(M_compileModelSync(context, &config, status) == NULL);
  REFUSED("has no model 'third'");
}

static void a_linked_model_runs(void) {
  M_CompileConfig *config = M_newCompileConfig();
  einkorn_set_model(config, &linked_model);
  M_AsyncCompiledModel *compiled = M_compileModelSync(context, &config, status);
  FINE();
  M_WeightsRegistry *weights = einkorn_new_weights();
  M_AsyncModel *model = M_initModel(context, compiled, weights, status);
  M_AsyncTensorMap *map = inputs_of(5, 7, 9), *outputs = M_executeModelSync(context, model, map, status);
  FINE();
  show(outputs, "y");
  einkorn_free_weights(weights);
  M_freeAsyncTensorMap(outputs);
  M_freeAsyncTensorMap(map);
  M_freeModel(model);
  M_freeCompiledModel(compiled);
}

static void weights_are_given(const char *path) {
  static float matrix[7 * 7];
  for (int k = 0; k < 49; k++) matrix[k] = 0.25f * (float)(k % 5);
  M_WeightsRegistry *weights = einkorn_new_weights();
  einkorn_set_weight(weights, "wrong", matrix, status);
  FINE();
  M_CompileConfig *config = config_of(path, NULL);
  M_AsyncCompiledModel *compiled = M_compileModelSync(context, &config, status);
  M_AsyncModel *model = M_initModel(context, compiled, weights, status);
  FINE();
  M_waitForModel(model, status);
  REFUSED("weight 'wrong': error[EK0433]");
  M_freeModel(model);
  einkorn_free_weights(weights);
  M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
  borrow(map, "x", M_FLOAT32, x, 2, 5, 7);
  model = M_initModel(context, compiled, NULL, status);
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("was not given");
  M_freeModel(model);
  weights = einkorn_new_weights();
  einkorn_set_weight(weights, "matrix", matrix, status);
  model = M_initModel(context, compiled, weights, status);
  einkorn_free_weights(weights);
  M_waitForModel(model, status);
  FINE();
  M_AsyncTensorMap *outputs = M_executeModelSync(context, model, map, status);
  FINE();
  show(outputs, "y");
  M_freeAsyncTensorMap(outputs);
  M_freeAsyncTensorMap(map);
  M_freeModel(model);
  M_freeCompiledModel(compiled);
}

static void computed_sizes(const char *path) {
  bool keep[] = {true, false, true, true, false, false, true};
  M_AsyncModel *model = loaded(path, NULL);
  for (int64_t count = 0; count <= 7; count += 7) {
    M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
    borrow(map, "keep", M_BOOL, keep, 1, count, 0);
    M_AsyncTensorMap *outputs = M_executeModelSync(context, model, map, status);
    FINE();
    show(outputs, "y");
    M_freeAsyncTensorMap(outputs);
    M_freeAsyncTensorMap(map);
  }
  M_freeModel(model);
}

/* Replays write into the outputs of the capture, from the inputs as they are now. */
static void captures_are_replayed(M_AsyncModel *model) {
  const uint64_t key = 42, other = 43;
  size_t count = 0;
  M_AsyncTensorMap *map = inputs_of(5, 7, 9);
  M_AsyncTensor *inputs[] = {M_getTensorByNameFrom(map, "x", status), M_getTensorByNameFrom(map, "w", status)};
  M_AsyncTensor **outputs = M_captureModelSync(context, model, &key, 1, inputs, 2, &count, status);
  FINE();
  CHECK(outputs != NULL && count == 1 && M_getTensorNumElements(outputs[0]) == 35);
  float *result = (float *)M_getTensorData(outputs[0]), first = result[0];
  result[0] = -1;
  M_replayModelSync(context, model, &key, 1, inputs, 2, status);
  FINE();
  CHECK(result[0] == first);
  M_debugVerifyReplayModelSync(context, model, &key, 1, inputs, 2, status);
  FINE();
  M_replayModelSync(context, model, &other, 1, inputs, 2, status);
  REFUSED("has no capture 43");
  M_replayModelSync(context, model, &key, 2, inputs, 2, status);
  REFUSED("expected 1 key, got 2");
  M_replayModelSync(context, model, &key, 1, inputs, 1, status);
  REFUSED("model 'attn' has 2 inputs, got 1");
  M_replayModelSync(context, model, NULL, 1, inputs, 2, status);
  REFUSED("'graphKeys' is null");
  M_AsyncTensorMap *smaller = inputs_of(4, 7, 9);
  M_AsyncTensor *small = M_getTensorByNameFrom(smaller, "x", status);
  M_replayModelSync(context, model, &key, 1, (M_AsyncTensor *[]){small, inputs[1]}, 2, status);
  REFUSED("input 'x' of model 'attn' has another shape than when 42 was captured");
  M_Device *host = M_newDevice(M_HOST, 0, NULL);
  M_AsyncTensor *moved = M_copyTensorToDevice(inputs[0], host, NULL);
  M_freeDevice(host);
  M_debugVerifyReplayModelSync(context, model, &key, 1, (M_AsyncTensor *[]){moved, inputs[1]}, 2, status);
  REFUSED("lies in other memory");
  M_captureModelSync(context, model, &key, 1, (M_AsyncTensor *[]){inputs[1], inputs[0]}, 2, &count, status);
  REFUSED("EK0454");
  M_captureModelSync(context, model, &key, 1, (M_AsyncTensor *[]){inputs[0], NULL}, 2, &count, status);
  REFUSED("input 'w' of model 'attn' is null");
  M_captureModelSync(context, model, &key, 1, inputs, 2, NULL, status);
  REFUSED("'numOutputs' is null");
  M_AsyncTensor **again = M_captureModelSync(context, model, &key, 1, inputs, 2, &count, status); /* in its place */
  FINE();
  M_freeTensor(again[0]);
  free(again);
  for (int k = 0; k < 2; k++) M_freeTensor(inputs[k]);
  M_freeTensor(outputs[0]);
  free(outputs);
  M_freeTensor(small);
  M_freeTensor(moved);
  M_freeAsyncTensorMap(smaller);
  M_freeAsyncTensorMap(map);
}

/* A package, and an exported file: from their paths, and from memory at any address. */
static void files_in_memory_run(const char *path) {
  static char memory[1 << 20];
  FILE *file = fopen(path, "rb");
  if (file == NULL) exit(2);
  size_t size = fread(memory + 1, 1, sizeof memory - 1, file);
  fclose(file);
  for (int turn = 0; turn < 3; turn++) {
    M_CompileConfig *config = turn == 0 ? config_of(path, NULL) : M_newCompileConfig();
    if (turn > 0) einkorn_set_model_memory(config, memory + (turn == 1), size);
    M_AsyncCompiledModel *compiled = M_compileModelSync(context, &config, status);
    FINE();
    if (turn == 1) memmove(memory, memory + 1, size); /* copied where that is needed */
    M_AsyncModel *model = M_initModel(context, compiled, NULL, status);
    M_AsyncTensorMap *map = M_newAsyncTensorMap(context);
    borrow(map, "x", M_FLOAT32, x, 2, 5, 7);
    M_AsyncTensorMap *outputs = M_executeModelSync(context, model, map, status);
    FINE();
    show(outputs, "y");
    M_freeAsyncTensorMap(outputs);
    M_freeAsyncTensorMap(map);
    M_freeModel(model);
    M_freeCompiledModel(compiled);
  }
}

static void count_lines(void *user, const char *text) {
  if (strstr(text, "is not signed") != NULL) ++*(int *)user;
}

/* A policy that requires a signature, and one that warns. */
static void policies_hold(const char *path, const char *required, const char *warning) {
  int lines = 0;
  M_RuntimeConfig *config = M_newRuntimeConfig();
  einkorn_set_log(config, count_lines, &lines);
  einkorn_set_trust(config, required);
  M_RuntimeContext *strict = M_newRuntimeContext(config, status);
  einkorn_set_trust(config, warning);
  M_RuntimeContext *loose = M_newRuntimeContext(config, status);
  M_freeRuntimeConfig(config);
  M_CompileConfig *source = config_of(path, NULL);
  CHECK(M_compileModelSync(strict, &source, status) == NULL);
  REFUSED("error[EK0563]");
  CHECK(einkorn_status_code(status) == -9);
  source = config_of(path, NULL);
  M_AsyncCompiledModel *compiled = M_compileModelSync(loose, &source, status);
  FINE();
  CHECK(lines == 1);
  M_freeCompiledModel(compiled);
  M_freeRuntimeContext(strict);
  M_freeRuntimeContext(loose);
}

/* Memory of a program: `held` blocks, none of which is given where `refuses`. */
typedef struct memory {
  int held, given;
  bool refuses;
} memory;

static void *allocate(void *user, size_t alignment, size_t size) {
  memory *memory = user;
  CHECK(alignment == 64 && size % 64 == 0 && size > 0);
  if (memory->refuses) return NULL;
  memory->held++;
  memory->given++;
  return aligned_alloc(alignment, size);
}

static void release(void *user, void *block) {
  CHECK(block != NULL);
  ((memory *)user)->held--;
  free(block);
}

static void memory_comes_from_the_program(const char *path, const char *late) {
  memory own = {0, 0, false};
  M_RuntimeConfig *config = M_newRuntimeConfig();
  einkorn_set_allocator(config, NULL, release, &own);
  CHECK(M_newRuntimeContext(config, status) == NULL);
  REFUSED("einkorn_set_allocator: 'allocate' is null, and 'release' is not");
  einkorn_set_allocator(config, allocate, NULL, &own);
  CHECK(M_newRuntimeContext(config, status) == NULL);
  REFUSED("einkorn_set_allocator: 'release' is null, and 'allocate' is not");
  einkorn_set_allocator(config, allocate, release, &own);
  M_RuntimeContext *others = context;
  context = M_newRuntimeContext(config, status);
  M_freeRuntimeConfig(config);
  M_AsyncModel *model = loaded(path, NULL);
  M_AsyncTensorMap *map = inputs_of(5, 7, 9), *outputs = M_executeModelSync(context, model, map, status);
  FINE();
  int first = own.given;
  CHECK(first == 2); /* the workspace and the output */
  M_AsyncTensor *tensor = M_getTensorByNameFrom(outputs, "y", status);
  M_Device *device = M_newDevice(M_HOST, 0, status);
  M_AsyncTensor *copy = M_copyTensorToDevice(tensor, device, status);
  CHECK(own.given == first + 1);
  M_freeAsyncTensorMap(outputs);
  outputs = M_executeModelSync(context, model, map, status);
  CHECK(own.given == first + 2); /* the workspace is kept */
  own.refuses = true;
  CHECK(M_executeModelSync(context, model, map, status) == NULL);
  REFUSED("there is no memory for output 'y'");
  CHECK(einkorn_status_code(status) == -2);
  own.refuses = false;
  M_freeAsyncTensorMap(outputs);
  M_freeAsyncTensorMap(map);
  M_freeModel(model);
  CHECK(own.held == 2); /* tensors outlive the model */
  M_freeTensor(tensor);
  M_freeTensor(copy);
  M_freeDevice(device);
  CHECK(own.held == 0);
  /* a size that the call computes */
  bool keep[7] = {true, false, true, true, false, false, true};
  model = loaded(late, NULL);
  map = M_newAsyncTensorMap(context);
  borrow(map, "keep", M_BOOL, keep, 1, 7, 0);
  first = own.given;
  for (int turn = 0; turn < 2; turn++) {
    own.refuses = turn == 1;
    outputs = M_executeModelSync(context, model, map, status);
    CHECK((outputs == NULL) == own.refuses && own.held == !own.refuses);
    M_freeAsyncTensorMap(outputs);
    CHECK(own.held == 0);
  }
  CHECK(own.given == first + 1);
  M_freeAsyncTensorMap(map);
  M_freeModel(model);
  M_freeRuntimeContext(context);
  context = others;
}

static void *call_often(void *argument) {
  status = M_newStatus();
  for (int64_t k = 0; k < 50; k++) {
    M_AsyncTensorMap *map = inputs_of(1 + k % 10, 7, 9);
    M_AsyncTensorMap *outputs = M_executeModelSync(context, argument, map, status);
    FINE();
    M_freeAsyncTensorMap(outputs);
    M_freeAsyncTensorMap(map);
  }
  M_freeStatus(status);
  return NULL;
}

int main(int count, char **paths) {
  if (count < 9) return 2;
  for (int k = 0; k < 10 * 7; k++) x[k] = 0.01f * (float)k;
  for (int k = 0; k < 7 * 9; k++) w[k] = 0.5f - 0.02f * (float)k;
  status = M_newStatus();
  printf("version %s\n", M_version());
  M_Device *device = M_newDevice(M_HOST, 0, status);
  FINE();
  CHECK(M_newDevice(M_ACCELERATOR, 0, status) == NULL);
  REFUSED("EK0430");
  M_RuntimeConfig *config = M_newRuntimeConfig();
  M_runtimeConfigAddDevice(config, device);
  M_setNumThreads(config, 2);
  context = M_newRuntimeContext(config, status);
  FINE();
  M_freeRuntimeConfig(config);
  M_freeDevice(device);
  M_setDebugPrintOptions(context, M_COMPACT, 4, NULL);
  M_setMojoDefineBool(context, "a", true);
  M_setMojoDefineInt(context, "b", 1);
  M_setMojoDefineString(context, "c", "d");
  nothing_is_null_safe();
  M_AsyncModel *model = loaded(paths[1], NULL);
  M_waitForModel(model, status);
  FINE();
  for (int64_t b = 0; b <= 10; b += 5) {
    M_AsyncTensorMap *map = inputs_of(b, 7, 9), *outputs = M_executeModelSync(context, model, map, status);
    FINE();
    show(outputs, "y");
    M_freeAsyncTensorMap(outputs);
    M_freeAsyncTensorMap(map);
  }
  wrong_inputs_are_refused(model);
  names_and_specs(paths[1]);
  tensors_outlive_their_map(model);
  calls_are_chained(paths[2]);
  a_linked_model_runs();
  weights_are_given(paths[3]);
  computed_sizes(paths[4]);
  captures_are_replayed(model);
  files_in_memory_run(paths[5]);
  files_in_memory_run(paths[6]);
  policies_hold(paths[5], paths[7], paths[8]);
  memory_comes_from_the_program(paths[1], paths[4]);
  wrong_files_are_refused(count - 9, paths + 9);
  pthread_t threads[3];
  for (int k = 0; k < 3; k++) pthread_create(&threads[k], NULL, call_often, model);
  for (int k = 0; k < 3; k++) pthread_join(threads[k], NULL);
  M_freeRuntimeContext(context); /* models outlive it */
  M_freeModel(model);
  M_freeStatus(status);
  return failures != 0;
}
