/* Captures: a call whose sizes, plan, memory and addresses are kept under a key, so that a replay runs the kernels and
   nothing else. */
#include "internal.h"

static void free_capture(capture *capture) {
  if (capture == NULL) return;
  free_slot(capture->slot);
  M_freeAsyncTensorMap(capture->inputs);
  M_freeAsyncTensorMap(capture->outputs);
  free(capture);
}

void free_captures(M_AsyncModel *model) {
  while (model->captures != NULL) {
    capture *next = model->captures->next;
    free_capture(model->captures);
    model->captures = next;
  }
}

static bool check_arguments(const char *function, const M_RuntimeContext *context, M_AsyncModel *model,
                            const uint64_t *keys, size_t key_count, M_AsyncTensor *const *inputs, size_t count,
                            M_Status *status) {
  const char *missing = context == NULL ? "context" : model == NULL ? "initializedModel" : NULL;
  if (missing == NULL) missing = keys == NULL ? "graphKeys" : inputs == NULL && count > 0 ? "inputs" : NULL;
  if (missing != NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "%s: '%s' is null", function, missing);
    return false;
  }
  if (key_count != 1) {
    fail(status, EINKORN_WRONG_ARGUMENT, "%s: there is one device, the host: expected 1 key, got %zu", function, key_count);
    return false;
  }
  if (!atomic_load_explicit(&model->task.done, memory_order_acquire) || model->task.status.code != 0) {
    M_Status ready = {0, NULL};
    task_wait(&model->task, &ready);
    bool failed = ready.code != 0;
    if (failed) copy_status(status, &ready);
    succeed(&ready);
    if (failed) return false;
  }
  const einkorn_model *wanted = model->compiled->model;
  if (count == (size_t)wanted->inputs) return true;
  fail(status, EINKORN_WRONG_ARGUMENT, "%s: model '%s' has %lld inputs, got %zu", function, wanted->name,
       (long long)wanted->inputs, count);
  return false;
}

/* The tensors under the names that the model gives its inputs. */
static M_AsyncTensorMap *named_inputs(const einkorn_model *model, M_AsyncTensor *const *inputs, M_Status *status) {
  M_AsyncTensorMap *map = M_newAsyncTensorMap(NULL);
  for (int64_t k = 0; map != NULL && k < model->inputs; k++) {
    const M_AsyncTensor *each = inputs[k];
    if (each == NULL) {
      fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0451]: input '%s' of model '%s' is null", model->tensors[k].name,
           model->name);
      M_freeAsyncTensorMap(map);
      return NULL;
    }
    const M_TensorSpec *spec = each->spec;
    M_TensorSpec *own = M_newTensorSpec(spec->shape, spec->rank, spec->dtype, model->tensors[k].name, NULL);
    if (add_tensor(map, new_tensor(own, each->data, each->block))) continue;
    M_freeAsyncTensorMap(map);
    map = NULL;
  }
  if (map == NULL) fail(status, EINKORN_NO_MEMORY, "there is no memory");
  return map;
}

static bool keep_capture(M_AsyncModel *model, capture *made, M_Status *status) {
  capture *old = NULL;
  pthread_mutex_lock(&model->lock);
  capture **place = &model->captures;
  while (*place != NULL && (*place)->key != made->key) place = &(*place)->next;
  bool free_to_go = *place == NULL || !atomic_load(&(*place)->busy);
  if (free_to_go) {
    old = *place;
    made->next = old == NULL ? NULL : old->next;
    *place = made;
  }
  pthread_mutex_unlock(&model->lock);
  free_capture(old);
  if (!free_to_go)
    fail(status, EINKORN_WRONG_ARGUMENT, "the capture %llu is being replayed by another thread",
         (unsigned long long)made->key);
  return free_to_go;
}

static M_AsyncTensor **shared_outputs(const einkorn_model *model, const M_AsyncTensorMap *outputs) {
  M_AsyncTensor **tensors = calloc((size_t)model->outputs + 1, sizeof(M_AsyncTensor *));
  bool made = tensors != NULL;
  for (int64_t k = 0; made && k < model->outputs; k++) {
    tensors[k] = share_tensor(find_tensor(outputs, model->tensors[model->inputs + k].name));
    made = tensors[k] != NULL;
  }
  if (made) return tensors;
  for (int64_t k = 0; tensors != NULL && k < model->outputs; k++) M_freeTensor(tensors[k]);
  free(tensors);
  return NULL;
}

M_AsyncTensor **M_captureModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                   const uint64_t *graphKeys, size_t numGraphKeys, M_AsyncTensor *const *inputs,
                                   size_t numInputs, size_t *numOutputs, M_Status *status) {
  if (!check_arguments("M_captureModelSync", context, initializedModel, graphKeys, numGraphKeys, inputs, numInputs, status))
    return NULL;
  const einkorn_model *model = initializedModel->compiled->model;
  if (numOutputs == NULL) {
    fail(status, EINKORN_WRONG_ARGUMENT, "M_captureModelSync: 'numOutputs' is null");
    return NULL;
  }
  if (model->run == NULL) {
    fail(status, NOT_SUPPORTED, "model '%s' computes sizes of its tensors, and cannot be captured", model->name);
    return NULL;
  }
  M_AsyncTensorMap *map = named_inputs(model, inputs, status);
  capture *made = map == NULL ? NULL : calloc(1, sizeof *made);
  M_AsyncTensor **tensors = NULL;
  if (made == NULL) {
    if (map != NULL) fail(status, EINKORN_NO_MEMORY, "there is no memory");
    M_freeAsyncTensorMap(map);
    return NULL;
  }
  made->key = graphKeys[0];
  made->inputs = map;
  made->outputs = M_newAsyncTensorMap(NULL);
  made->slot = new_slot(initializedModel->compiled);
  bool fine = made->outputs != NULL && made->slot != NULL;
  if (!fine)
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  else if ((fine = execute_in(initializedModel->compiled, made->slot, map, made->outputs, status)) &&
           !(fine = (tensors = shared_outputs(model, made->outputs)) != NULL))
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  if (!fine || !keep_capture(initializedModel, made, status)) {
    for (int64_t k = 0; tensors != NULL && k < model->outputs; k++) M_freeTensor(tensors[k]);
    free(tensors);
    free_capture(made);
    return NULL;
  }
  *numOutputs = (size_t)model->outputs;
  succeed(status);
  return tensors;
}

/* The capture of a key, which no other thread takes until `busy` is false. */
static capture *take_capture(M_AsyncModel *model, uint64_t key, M_Status *status) {
  pthread_mutex_lock(&model->lock);
  capture *found = model->captures;
  while (found != NULL && found->key != key) found = found->next;
  bool busy = found != NULL && atomic_load_explicit(&found->busy, memory_order_acquire);
  if (found != NULL && !busy) atomic_store_explicit(&found->busy, true, memory_order_relaxed); /* under the lock */
  pthread_mutex_unlock(&model->lock);
  if (found == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "model '%s' has no capture %llu: call M_captureModelSync first",
         model->compiled->model->name, (unsigned long long)key);
  else if (busy)
    fail(status, EINKORN_WRONG_ARGUMENT, "the capture %llu is being replayed by another thread", (unsigned long long)key);
  return busy ? NULL : found;
}

/* Inputs are those of the capture: the same memory, dtypes and shapes. */
static bool are_captured(const M_AsyncCompiledModel *compiled, const capture *capture, M_AsyncTensor *const *inputs,
                         M_Status *status) {
  for (size_t k = 0; k < capture->inputs->count; k++) {
    const M_AsyncTensor *had = capture->inputs->tensors[k], *given = inputs[k];
    const char *what = "is null";
    if (given != NULL) {
      const M_TensorSpec *a = had->spec, *b = given->spec;
      bool same = a->rank == b->rank;
      for (int64_t j = 0; same && j < a->rank; j++) same = a->shape[j] == b->shape[j];
      what = a->dtype != b->dtype ? "has another dtype" : !same ? "has another shape" : "lies in other memory";
      if (same && a->dtype == b->dtype && had->data == given->data) continue;
    }
    fail(status, EINKORN_WRONG_ARGUMENT, "input '%s' of model '%s' %s than when %llu was captured", had->spec->name,
         compiled->model->name, what, (unsigned long long)capture->key);
    return false;
  }
  return true;
}

void M_replayModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel, const uint64_t *graphKeys,
                       size_t numGraphKeys, M_AsyncTensor *const *inputs, size_t numInputs, M_Status *status) {
  if (!check_arguments("M_replayModelSync", context, initializedModel, graphKeys, numGraphKeys, inputs, numInputs, status))
    return;
  const M_AsyncCompiledModel *compiled = initializedModel->compiled;
  capture *capture = take_capture(initializedModel, graphKeys[0], status);
  if (capture == NULL) return;
  if (are_captured(compiled, capture, inputs, status) && run_in(compiled->model, capture->slot, status)) succeed(status);
  atomic_store_explicit(&capture->busy, false, memory_order_release);
}

void M_debugVerifyReplayModelSync(const M_RuntimeContext *context, M_AsyncModel *initializedModel,
                                  const uint64_t *graphKeys, size_t numGraphKeys, M_AsyncTensor *const *inputs,
                                  size_t numInputs, M_Status *status) {
  if (!check_arguments("M_debugVerifyReplayModelSync", context, initializedModel, graphKeys, numGraphKeys, inputs,
                       numInputs, status))
    return;
  const M_AsyncCompiledModel *compiled = initializedModel->compiled;
  const einkorn_model *model = compiled->model;
  M_AsyncTensorMap *map = named_inputs(model, inputs, status), *outputs = NULL;
  capture *capture = map == NULL ? NULL : take_capture(initializedModel, graphKeys[0], status);
  slot *slot = NULL;
  if (capture != NULL && are_captured(compiled, capture, inputs, status)) {
    outputs = M_newAsyncTensorMap(NULL);
    slot = new_slot(compiled);
    if (outputs == NULL || slot == NULL)
      fail(status, EINKORN_NO_MEMORY, "there is no memory");
    else if (execute_in(compiled, slot, map, outputs, status)) {
      size_t sizes = (size_t)model->dims * sizeof *slot->sizes;
      bool same = memcmp(slot->sizes, capture->slot->prepared, sizes) == 0 &&
                  memcmp(slot->plan, capture->slot->plan, (size_t)model->plan_bytes) == 0;
      for (int64_t k = 0; k < model->inputs; k++) same = same && slot->tensors[k] == capture->slot->tensors[k];
      if (same)
        succeed(status);
      else
        fail(status, EINKORN_WRONG_ARGUMENT,
             "the plan of model '%s' for these inputs is not the one that was captured under %llu", model->name,
             (unsigned long long)capture->key);
    }
  }
  if (capture != NULL) atomic_store(&capture->busy, false);
  free_slot(slot);
  M_freeAsyncTensorMap(outputs);
  M_freeAsyncTensorMap(map);
}
