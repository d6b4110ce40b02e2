/* Models: configurations, loading, initialising, executing, and what is asked about them. */
#include "internal.h"

/* *** configurations *** */

M_CompileConfig *M_newCompileConfig(void) { return calloc(1, sizeof(M_CompileConfig)); }

static void set_text(char **place, const char *text) {
  free(*place);
  *place = text == NULL ? NULL : strdup(text);
}

void M_setModelPath(M_CompileConfig *compileConfig, const char *path) {
  if (compileConfig != NULL) set_text(&compileConfig->path, path);
}

void einkorn_set_model_name(M_CompileConfig *config, const char *name) {
  if (config != NULL) set_text(&config->name, name);
}

void einkorn_set_model(M_CompileConfig *config, const einkorn_model *model) {
  if (config != NULL) config->model = model;
}

void einkorn_set_model_memory(M_CompileConfig *config, const void *memory, size_t size) {
  if (config == NULL) return;
  config->memory = memory;
  config->size = memory == NULL ? 0 : size;
}

void M_freeCompileConfig(M_CompileConfig *config) {
  if (config == NULL) return;
  free(config->path);
  free(config->name);
  free(config);
}

/* *** loading *** */

static M_AsyncCompiledModel *compile(const M_RuntimeContext *context, M_CompileConfig **place, bool in_thread,
                                     M_Status *status) {
  M_CompileConfig *config = place == NULL ? NULL : *place;
  if (place != NULL) *place = NULL;
  M_AsyncCompiledModel *compiled = NULL;
  if (context == NULL || config == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_compileModel: '%s' is null", context == NULL ? "context" : "compileConfig");
  else if (config->path == NULL && config->model == NULL && config->memory == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_compileModel: the config has no model: call M_setModelPath first");
  else if ((compiled = calloc(1, sizeof *compiled)) == NULL ||
           !copy_settings(&context->settings, &compiled->settings)) {
    free(compiled);
    compiled = NULL;
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  }
  if (compiled == NULL) {
    M_freeCompileConfig(config);
    return NULL;
  }
  atomic_init(&compiled->owners, 1);
  compiled->config = config;
  compiled->threads = context->threads;
  task_start(&compiled->task, load_model, compiled, in_thread);
  succeed(status);
  return compiled;
}

M_AsyncCompiledModel *M_compileModel(const M_RuntimeContext *context, M_CompileConfig **compileConfig,
                                     M_Status *status) {
  return compile(context, compileConfig, true, status);
}

M_AsyncCompiledModel *M_compileModelSync(const M_RuntimeContext *context, M_CompileConfig **compileConfig,
                                         M_Status *status) {
  M_AsyncCompiledModel *compiled = compile(context, compileConfig, false, status);
  if (compiled == NULL) return NULL;
  if (compiled->task.status.code == 0) return compiled;
  copy_status(status, &compiled->task.status);
  M_freeCompiledModel(compiled);
  return NULL;
}

/* Tasks change what a waiting thread reads, not what the model is: hence functions of a constant model wait, too. */
static bool wait_for(const M_AsyncCompiledModel *compiled, const char *function, M_Status *status) {
  if (compiled == NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "%s: the model is null", function);
    return false;
  }
  task_wait(&((M_AsyncCompiledModel *)compiled)->task, status);
  return atomic_load(&compiled->task.done) && compiled->task.status.code == 0;
}

void M_waitForCompilation(M_AsyncCompiledModel *compiledModel, M_Status *status) {
  wait_for(compiledModel, "M_waitForCompilation", status);
}

void M_freeCompiledModel(M_AsyncCompiledModel *model) {
  if (model == NULL || atomic_fetch_sub(&model->owners, 1) != 1) return;
  if (!task_end(&model->task)) return;
  unload_model(model);
  free(model->settings.trust);
  M_freeCompileConfig(model->config);
  free(model);
}

/* *** names and specs *** */

const einkorn_model *einkorn_model_of(const M_AsyncCompiledModel *compiled, M_Status *status) {
  return wait_for(compiled, "einkorn_model_of", status) ? compiled->model : NULL;
}

static M_TensorNameArray *names_of(const M_AsyncCompiledModel *compiled, bool outputs, M_Status *status) {
  if (!wait_for(compiled, outputs ? "M_getOutputNames" : "M_getInputNames", status)) return NULL;
  const einkorn_model *model = compiled->model;
  M_TensorNameArray *names = calloc(1, sizeof *names);
  size_t count = (size_t)(outputs ? model->outputs : model->inputs);
  if (names == NULL || (names->names = calloc(count + 1, sizeof *names->names)) == NULL) {
    free(names);
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return NULL;
  }
  for (; names->count < count; names->count++) {
    char *copy = strdup(model->tensors[names->count + (outputs ? (size_t)model->inputs : 0)].name);
    if (copy == NULL) {
      M_freeTensorNameArray(names);
      fail(status, EINKORN_NO_MEMORY, "there is no memory");
      return NULL;
    }
    names->names[names->count] = copy;
  }
  return names;
}

M_TensorNameArray *M_getInputNames(const M_AsyncCompiledModel *model, M_Status *status) {
  return names_of(model, false, status);
}

M_TensorNameArray *M_getOutputNames(const M_AsyncCompiledModel *model, M_Status *status) {
  return names_of(model, true, status);
}

void M_freeTensorNameArray(M_TensorNameArray *names) {
  if (names == NULL) return;
  for (size_t k = 0; k < names->count; k++) free((char *)names->names[k]);
  free(names->names);
  free(names);
}

size_t einkorn_name_count(const M_TensorNameArray *names) { return names == NULL ? 0 : names->count; }

const char *einkorn_name_at(const M_TensorNameArray *names, size_t index) {
  return names == NULL || index >= names->count ? NULL : names->names[index];
}

static M_TensorSpec *spec_of(const M_AsyncCompiledModel *compiled, int64_t first, int64_t count, const char *name,
                             M_Status *status) {
  const einkorn_model *model = compiled->model;
  for (int64_t k = first; name != NULL && k < first + count; k++) {
    const einkorn_tensor *tensor = &model->tensors[k];
    if (strcmp(tensor->name, name) != 0) continue;
    int64_t *shape = calloc((size_t)tensor->rank + 1, sizeof *shape);
    for (int32_t j = 0; shape != NULL && j < tensor->rank; j++) {
      const axis *axis = &compiled->axes[k][j];
      shape[j] = axis->kind == FIXED ? axis->value : kDynamicDimensionValue;
    }
    M_TensorSpec *spec = shape == NULL ? NULL : M_newTensorSpec(shape, tensor->rank, compiled->dtypes[k], name, NULL);
    free(shape);
    if (spec == NULL) fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return spec;
  }
  fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0469]: model '%s' has no tensor '%s'", model->name,
       name == NULL ? "" : name);
  return NULL;
}

M_TensorSpec *einkorn_input_spec(const M_AsyncCompiledModel *compiled, const char *name, M_Status *status) {
  if (!wait_for(compiled, "einkorn_input_spec", status)) return NULL;
  return spec_of(compiled, 0, compiled->model->inputs, name, status);
}

M_TensorSpec *einkorn_output_spec(const M_AsyncCompiledModel *compiled, const char *name, M_Status *status) {
  if (!wait_for(compiled, "einkorn_output_spec", status)) return NULL;
  return spec_of(compiled, compiled->model->inputs, compiled->model->outputs, name, status);
}

/* *** initialising *** */

static void initialise(void *argument, M_Status *status) {
  M_AsyncModel *model = argument;
  if (!wait_for(model->compiled, "M_initModel", status) || model->weights == NULL || model->weights->count == 0) return;
  void *symbol = model_function(model->compiled, "_set_weight");
  int32_t (*set_weight)(const char *, const void *, einkorn_failure *);
  memcpy(&set_weight, &symbol, sizeof symbol);
  if (set_weight == NULL) {
    fail(status, NOT_SUPPORTED, "model '%s' takes no weights from a registry: export it with weights=\"given\"",
         model->compiled->model->name);
    return;
  }
  for (size_t k = 0; k < model->weights->count; k++) {
    einkorn_failure why;
    if (set_weight(model->weights->weights[k].name, model->weights->weights[k].memory, &why) == 0) continue;
    M_Status reason = {0, NULL};
    fail_model(&reason, model->compiled->model, &why);
    fail(status, why.status, "weight '%s': %s", model->weights->weights[k].name, M_getError(&reason));
    succeed(&reason);
    return;
  }
}

M_AsyncModel *M_initModel(const M_RuntimeContext *context, const M_AsyncCompiledModel *compiledModel,
                          const M_WeightsRegistry *weightsRegistry, M_Status *status) {
  if (context == NULL || compiledModel == NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "M_initModel: '%s' is null", context == NULL ? "context" : "compiledModel");
    return NULL;
  }
  M_AsyncModel *model = calloc(1, sizeof *model);
  if (model != NULL && weightsRegistry != NULL && (model->weights = copy_weights(weightsRegistry)) == NULL) {
    free(model);
    model = NULL;
  }
  if (model == NULL) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return NULL;
  }
  model->compiled = (M_AsyncCompiledModel *)compiledModel;
  atomic_fetch_add(&model->compiled->owners, 1);
  atomic_init(&model->owners, 1);
  pthread_mutex_init(&model->lock, NULL);
  task_start(&model->task, initialise, model, true);
  succeed(status);
  return model;
}

void M_waitForModel(M_AsyncModel *model, M_Status *status) {
  if (model == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_waitForModel: 'model' is null");
  else
    task_wait(&model->task, status);
}

void M_freeModel(M_AsyncModel *model) {
  if (model == NULL || atomic_fetch_sub(&model->owners, 1) != 1) return;
  if (!task_end(&model->task)) return;
  free_captures(model);
  while (model->slots != NULL) {
    slot *next = model->slots->next;
    free_slot(model->slots);
    model->slots = next;
  }
  pthread_mutex_destroy(&model->lock);
  M_freeCompiledModel(model->compiled);
  einkorn_free_weights(model->weights);
  free(model);
}

/* *** executing *** */

static void run(void *argument, M_Status *status) {
  M_AsyncTensorMap *outputs = argument;
  task_wait(&outputs->model->task, status);
  if (!M_isError(status)) execute(outputs->model, outputs->inputs, outputs, status);
}

static bool check_call(const char *name, const M_RuntimeContext *context, const M_AsyncModel *model,
                       M_AsyncTensorMap *inputs, M_Status *status) {
  const char *missing = context == NULL ? "context" : model == NULL ? "initializedModel" : NULL;
  if (missing == NULL && inputs == NULL) missing = "inputs";
  if (missing == NULL) return true;
  fail(status, EINKORN_WRONG_ARGUMENT, "%s: '%s' is null", name, missing);
  return false;
}

/* The tensors of the inputs, which stay alive without their map. A call whose result they are is waited for. */
static M_AsyncTensorMap *copy_map(M_AsyncTensorMap *inputs, M_Status *status) {
  M_Status ready = {0, NULL};
  if (inputs->pending) task_wait(&inputs->task, &ready);
  if (ready.code != 0) {
    copy_status(status, &ready);
    succeed(&ready);
    return NULL;
  }
  M_AsyncTensorMap *copy = M_newAsyncTensorMap(NULL);
  for (size_t k = 0; copy != NULL && k < inputs->count; k++)
    if (!add_tensor(copy, share_tensor(inputs->tensors[k]))) {
      M_freeAsyncTensorMap(copy);
      copy = NULL;
    }
  if (copy == NULL) fail(status, EINKORN_NO_MEMORY, "there is no memory");
  return copy;
}

M_AsyncTensorMap *M_executeModel(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                 M_AsyncTensorMap *inputs, M_Status *status) {
  if (!check_call("M_executeModel", context, initializedModel, inputs, status)) return NULL;
  M_AsyncTensorMap *copy = copy_map(inputs, status);
  if (copy == NULL) return NULL;
  M_AsyncTensorMap *outputs = M_newAsyncTensorMap(context);
  if (outputs == NULL) {
    M_freeAsyncTensorMap(copy);
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return NULL;
  }
  atomic_fetch_add(&initializedModel->owners, 1);
  outputs->model = initializedModel;
  outputs->inputs = copy;
  outputs->pending = true;
  task_start(&outputs->task, run, outputs, true);
  succeed(status);
  return outputs;
}

M_AsyncTensorMap *M_executeModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                     M_AsyncTensorMap *inputs, M_Status *status) {
  if (!check_call("M_executeModelSync", context, initializedModel, inputs, status)) return NULL;
  M_Status state = {0, NULL};
  M_AsyncTensorMap *outputs = NULL;
  task_wait(&initializedModel->task, &state);
  if (state.code == 0 && inputs->pending) task_wait(&inputs->task, &state);
  if (state.code == 0 && (outputs = M_newAsyncTensorMap(context)) == NULL)
    fail(&state, EINKORN_NO_MEMORY, "there is no memory");
  if (state.code == 0) execute(initializedModel, inputs, outputs, &state);
  if (state.code != 0) {
    M_freeAsyncTensorMap(outputs);
    outputs = NULL;
  }
  copy_status(status, &state);
  succeed(&state);
  return outputs;
}

void M_waitForTensors(M_AsyncTensorMap *tensors, M_Status *status) {
  if (tensors == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_waitForTensors: 'tensors' is null");
  else if (tensors->pending)
    task_wait(&tensors->task, status);
  else
    succeed(status);
}
