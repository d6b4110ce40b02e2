/* Calls a model: sizes from the inputs, memory for the outputs, a plan and a workspace that are kept for the next call. */
#include "internal.h"

void free_slot(slot *slot) {
  if (slot == NULL) return;
  free(slot->sizes);
  free(slot->prepared);
  free(slot->tensors);
  free(slot->late);
  free(slot->plan);
  give_memory(slot->allocator, slot->workspace);
  free(slot);
}

slot *new_slot(const M_AsyncCompiledModel *compiled) {
  const einkorn_model *model = compiled->model;
  slot *slot = calloc(1, sizeof *slot);
  if (slot == NULL) return NULL;
  slot->allocator = &compiled->settings.allocator;
  size_t dims = (size_t)(model->dims + model->late_dims), tensors = (size_t)(model->inputs + model->outputs);
  slot->sizes = calloc(dims + 1, sizeof *slot->sizes);
  slot->prepared = calloc(dims + 1, sizeof *slot->prepared);
  slot->tensors = calloc(tensors + 1, sizeof *slot->tensors);
  slot->late = calloc((size_t)model->outputs + 1, sizeof *slot->late);
  slot->plan = calloc(1, (size_t)model->plan_bytes + 8);
  if (slot->sizes != NULL && slot->prepared != NULL && slot->tensors != NULL && slot->late != NULL &&
      slot->plan != NULL)
    return slot;
  free_slot(slot);
  return NULL;
}

static slot *take_slot(M_AsyncModel *model) {
  pthread_mutex_lock(&model->lock);
  slot *slot = model->slots;
  if (slot != NULL) model->slots = slot->next;
  pthread_mutex_unlock(&model->lock);
  return slot == NULL ? new_slot(model->compiled) : slot;
}

static void give_slot(M_AsyncModel *model, slot *slot) {
  pthread_mutex_lock(&model->lock);
  slot->next = model->slots;
  model->slots = slot;
  pthread_mutex_unlock(&model->lock);
}

/* The size of an axis from the first `dims` sizes of the call. */
static bool size_of(const M_AsyncCompiledModel *compiled, int64_t tensor, int32_t j, int64_t dims, const int64_t *sizes,
                    int64_t *size) {
  const axis *axis = &compiled->axes[tensor][j];
  if (axis->kind == COMPUTED)
    return evaluate(compiled->model->tensors[tensor].dims[j], compiled->model, dims, sizes, size);
  if (axis->kind == NAMED && axis->value >= dims) return false;
  *size = axis->kind == FIXED ? axis->value : sizes[axis->value];
  return true;
}

/* Finds each input by its name, and checks its dtype and its rank. Dims are what the first axis of that name has. */
static bool bind_inputs(const M_AsyncCompiledModel *compiled, const M_AsyncTensorMap *inputs, slot *slot,
                        M_Status *status) {
  const einkorn_model *model = compiled->model;
  for (int64_t dim = 0; dim < model->dims; dim++) slot->sizes[dim] = -1;
  for (int64_t k = 0; k < model->inputs; k++) {
    const einkorn_tensor *wanted = &model->tensors[k];
    const M_AsyncTensor *given = find_tensor(inputs, wanted->name);
    if (given == NULL) {
      fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0451]: input '%s' of model '%s' is missing", wanted->name,
           model->name);
      return false;
    }
    if (compiled->dtypes[k] == M_UNKNOWN) {
      fail(status, NOT_SUPPORTED, "input '%s' is %s, which M_Dtype does not have: call the exported function instead",
           wanted->name, wanted->dtype);
      return false;
    }
    if (given->spec->dtype != compiled->dtypes[k]) {
      fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0452]: input '%s' is %s, not %s", wanted->name,
           einkorn_dtype_name(given->spec->dtype), wanted->dtype);
      return false;
    }
    if (given->spec->rank != wanted->rank) {
      fail(status, EINKORN_WRONG_SIZE, "error[EK0454]: input '%s' has %lld axes, not %d", wanted->name,
           (long long)given->spec->rank, (int)wanted->rank);
      return false;
    }
    slot->tensors[k] = given->data;
    for (int32_t j = 0; j < wanted->rank; j++) {
      const axis *axis = &compiled->axes[k][j];
      if (axis->kind == NAMED && axis->value < model->dims && slot->sizes[axis->value] < 0)
        slot->sizes[axis->value] = given->spec->shape[j];
    }
  }
  if (inputs->count == (size_t)model->inputs) return true;
  for (size_t n = 0; n < inputs->count; n++) {
    int64_t k = 0;
    while (k < model->inputs && strcmp(model->tensors[k].name, inputs->tensors[n]->spec->name) != 0) k++;
    if (k < model->inputs) continue;
    fail(status, EINKORN_WRONG_ARGUMENT, "error[EK0469]: model '%s' has no input '%s'", model->name,
         inputs->tensors[n]->spec->name);
    return false;
  }
  return true;
}

static bool check_sizes(const M_AsyncCompiledModel *compiled, const M_AsyncTensorMap *inputs, const slot *slot,
                        M_Status *status) {
  const einkorn_model *model = compiled->model;
  for (int64_t dim = 0; dim < model->dims; dim++)
    if (slot->sizes[dim] < 0) {
      fail(status, NOT_SUPPORTED, "no axis of an input of model '%s' is the dim '%s': call the exported function instead",
           model->name, model->dim_names[dim]);
      return false;
    }
  for (int64_t k = 0; k < model->inputs; k++) {
    const einkorn_tensor *wanted = &model->tensors[k];
    const int64_t *shape = find_tensor(inputs, wanted->name)->spec->shape;
    for (int32_t j = 0; j < wanted->rank; j++) {
      int64_t size = -1;
      bool known = size_of(compiled, k, j, model->dims, slot->sizes, &size);
      if (known && size == shape[j]) continue;
      if (compiled->axes[k][j].kind == FIXED || !known)
        fail(status, EINKORN_WRONG_SIZE, "error[EK0454]: axis %d of input '%s' is %lld, not %s", (int)j, wanted->name,
             (long long)shape[j], wanted->dims[j]);
      else
        fail(status, EINKORN_WRONG_SIZE, "error[EK0454]: axis %d of input '%s' is %lld, not %s = %lld", (int)j,
             wanted->name, (long long)shape[j], wanted->dims[j], (long long)size);
      return false;
    }
  }
  return true;
}

/* Moves what a model has allocated into memory of the program's allocator. */
static void *moved(const allocator *allocator, void *data, size_t bytes) {
  if (allocator->allocate == NULL) return data;
  void *own = take_memory(allocator, bytes);
  if (own != NULL && bytes > 0) memcpy(own, data, bytes);
  free(data);
  return own;
}

/* The tensor of an output over memory that it takes: its own, or what the model has allocated. */
static bool add_output(const M_AsyncCompiledModel *compiled, int64_t tensor, int64_t dims, const int64_t *sizes,
                       void **data, M_AsyncTensorMap *outputs, M_Status *status) {
  const einkorn_tensor *wanted = &compiled->model->tensors[tensor];
  size_t count, bytes;
  if (compiled->dtypes[tensor] == M_UNKNOWN) {
    fail(status, NOT_SUPPORTED, "output '%s' is %s, which M_Dtype does not have: call the exported function instead",
         wanted->name, wanted->dtype);
    return false;
  }
  const allocator *allocator = &compiled->settings.allocator;
  M_TensorSpec *spec = new_spec(wanted->rank, compiled->dtypes[tensor], wanted->name);
  block *owner = calloc(1, sizeof *owner);
  bool known = spec != NULL && owner != NULL;
  for (int32_t j = 0; known && j < wanted->rank; j++)
    known = size_of(compiled, tensor, j, dims, sizes, &spec->shape[j]);
  if (!known) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory for output '%s'", wanted->name);
  } else if (!count_elements(spec, &count, &bytes) || bytes > SIZE_MAX / 2) {
    fail(status, EINKORN_WRONG_SIZE, "error[EK0476]: output '%s' has sizes that are negative or too large",
         wanted->name);
  } else {
    void *memory = *data == NULL ? take_memory(allocator, bytes) : moved(allocator, *data, bytes);
    *data = NULL;
    if (memory == NULL) {
      fail(status, EINKORN_NO_MEMORY, "there is no memory for output '%s': %zu bytes", wanted->name, bytes);
    } else {
      owner->data = memory;
      owner->allocator = *allocator;
      M_AsyncTensor *made = new_tensor(spec, memory, owner);
      spec = NULL;
      if (made != NULL) {
        if (add_tensor(outputs, made)) return true;
        fail(status, EINKORN_NO_MEMORY, "there is no memory");
        return false;
      }
      give_memory(allocator, memory);
      fail(status, EINKORN_NO_MEMORY, "there is no memory");
    }
  }
  M_freeTensorSpec(spec);
  free(owner);
  free(*data);
  *data = NULL;
  return false;
}

/* The plan of these sizes, and a workspace that is large enough. */
static bool prepare(const einkorn_model *model, slot *slot, M_Status *status) {
  size_t bytes = (size_t)model->dims * sizeof *slot->sizes;
  if (slot->is_prepared && memcmp(slot->sizes, slot->prepared, bytes) == 0) return true;
  einkorn_failure why;
  slot->is_prepared = false;
  if (model->prepare(slot->sizes, slot->plan, &why) != 0) {
    fail_model(status, model, &why);
    return false;
  }
  int64_t wanted = model->workspace(slot->sizes);
  if (wanted > slot->workspace_bytes || slot->workspace == NULL) {
    give_memory(slot->allocator, slot->workspace);
    slot->workspace_bytes = 0;
    slot->workspace = wanted < 0 ? NULL : take_memory(slot->allocator, (size_t)wanted);
    if (slot->workspace == NULL) {
      fail(status, EINKORN_NO_MEMORY, "there is no memory for a workspace of %lld bytes", (long long)wanted);
      return false;
    }
    slot->workspace_bytes = wanted;
  }
  memcpy(slot->prepared, slot->sizes, bytes);
  slot->is_prepared = true;
  return true;
}

/* Runs what is planned; a thread whose stack is too small lets the model choose another. */
bool run_in(const einkorn_model *model, slot *slot, M_Status *status) {
  einkorn_failure why;
  int32_t result = model->run == NULL ? EINKORN_SMALL_STACK : model->run(slot->plan, slot->tensors, slot->workspace, &why);
  if (result == EINKORN_SMALL_STACK) result = model->call(slot->sizes, slot->tensors, &why);
  if (result != 0) fail_model(status, model, &why);
  return result == 0;
}

static bool call(const M_AsyncCompiledModel *compiled, slot *slot, M_AsyncTensorMap *outputs, M_Status *status) {
  const einkorn_model *model = compiled->model;
  bool planned = model->run != NULL;
  if (planned && !prepare(model, slot, status)) return false;
  for (int64_t k = 0; k < model->outputs; k++) {
    int64_t tensor = model->inputs + k;
    slot->late[k] = NULL;
    slot->tensors[tensor] = &slot->late[k];
    if (model->tensors[tensor].flags & EINKORN_LATE) continue;
    void *data = NULL;
    if (!add_output(compiled, tensor, model->dims, slot->sizes, &data, outputs, status)) return false;
    slot->tensors[tensor] = find_tensor(outputs, model->tensors[tensor].name)->data;
  }
  if (!run_in(model, slot, status)) return false;
  bool made = true;
  for (int64_t k = 0; k < model->outputs; k++) {
    int64_t tensor = model->inputs + k;
    if (!(model->tensors[tensor].flags & EINKORN_LATE)) continue;
    if (made)
      made = add_output(compiled, tensor, model->dims + model->late_dims, slot->sizes, &slot->late[k], outputs, status);
    else
      free(slot->late[k]);
  }
  return made;
}

bool execute_in(const M_AsyncCompiledModel *compiled, slot *slot, const M_AsyncTensorMap *inputs,
                M_AsyncTensorMap *outputs, M_Status *status) {
  return bind_inputs(compiled, inputs, slot, status) && check_sizes(compiled, inputs, slot, status) &&
         call(compiled, slot, outputs, status);
}

void execute(M_AsyncModel *model, const M_AsyncTensorMap *inputs, M_AsyncTensorMap *outputs, M_Status *status) {
  slot *slot = take_slot(model);
  if (slot == NULL) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return;
  }
  if (execute_in(model->compiled, slot, inputs, outputs, status)) succeed(status);
  give_slot(model, slot);
}
