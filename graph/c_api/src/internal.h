/* What the sources of the C API share. */
#ifndef EINKORN_INTERNAL_H
#define EINKORN_INTERNAL_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dlfcn.h, pthread.h */
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "einkorn/runtime.h"

#define HIDDEN __attribute__((visibility("hidden")))

enum { NOT_SUPPORTED = -100, NO_FILE = -101, WRONG_FILE = -102, NOT_INITIALISED = -103 };

struct M_Status {
  int32_t code;
  char *text; /* null: the constant text of "no memory" */
};

/* Writes success. Null is allowed in both. */
HIDDEN void succeed(M_Status *status);
HIDDEN void fail(M_Status *status, int32_t code, const char *format, ...) __attribute__((format(printf, 3, 4)));
HIDDEN void copy_status(M_Status *to, const M_Status *from);
/* The text of a failure of an exported function. */
HIDDEN void fail_model(M_Status *status, const einkorn_model *model, const einkorn_failure *why);

/* A function that runs in a thread of its own, or at once. It writes its result into `status`. */
typedef struct task {
  void (*work)(void *argument, M_Status *status);
  void *argument;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  bool has_thread, done;
  M_Status status;
} task;

HIDDEN void task_start(task *this, void (*work)(void *, M_Status *), void *argument, bool in_thread);
HIDDEN void task_wait(task *this, M_Status *status);
HIDDEN void task_end(task *this);

struct M_RuntimeContext {
  size_t threads;
};

struct M_Device {
  M_DeviceType type;
  int id;
};

struct M_TensorSpec {
  int64_t rank; /* or kDynamicRankValue */
  int64_t *shape;
  M_Dtype dtype;
  char *name;
};

/* Memory of tensors, which the tensors that are in it share. */
typedef struct block {
  atomic_int owners;
  void *data;
} block;

struct M_AsyncTensor {
  M_TensorSpec *spec;
  void *data;
  block *block; /* null: borrowed */
};

struct M_AsyncTensorMap {
  size_t count, room;
  M_AsyncTensor **tensors;
  bool pending; /* whether `task` makes the tensors */
  task task;
  M_AsyncModel *model;
  M_AsyncTensorMap *inputs;
};

struct M_WeightsRegistry {
  size_t count, room;
  struct weight {
    char *name;
    const void *memory;
  } *weights;
};

struct M_CompileConfig {
  char *path, *name;
  const einkorn_model *model;
};

/* An axis of a tensor of a model. */
typedef struct axis {
  enum { FIXED, NAMED, COMPUTED } kind;
  int64_t value; /* the size, or the number of the dim */
} axis;

struct M_AsyncCompiledModel {
  atomic_int owners;
  task task;
  M_CompileConfig *config;
  size_t threads;
  void *library;
  char *prefix; /* of the functions in the library */
  const einkorn_model *model;
  axis **axes; /* of each tensor */
  M_Dtype *dtypes;
};

/* The memory of one call at a time, kept for the next one. */
typedef struct slot {
  struct slot *next;
  int64_t *sizes, *prepared; /* of this call; of the plan */
  void **tensors;            /* addresses that the model is given */
  void **late;               /* where a late output's address is written */
  void *plan, *workspace;
  int64_t workspace_bytes;
  bool is_prepared;
} slot;

struct M_AsyncModel {
  atomic_int owners;
  task task;
  M_AsyncCompiledModel *compiled;
  M_WeightsRegistry *weights;
  pthread_mutex_t lock;
  slot *slots; /* those that no call uses */
};

struct M_TensorNameArray {
  size_t count;
  const char **names;
};

HIDDEN bool grow(void **rows, size_t count, size_t *room, size_t size);
HIDDEN M_Dtype dtype_of(const char *name);
HIDDEN M_TensorSpec *copy_spec(const M_TensorSpec *spec);
HIDDEN bool count_elements(const M_TensorSpec *spec, size_t *count, size_t *bytes);
HIDDEN M_AsyncTensor *new_tensor(M_TensorSpec *spec, void *data, block *owner);
HIDDEN M_AsyncTensor *share_tensor(const M_AsyncTensor *tensor);
HIDDEN M_AsyncTensor *find_tensor(const M_AsyncTensorMap *map, const char *name);
HIDDEN bool add_tensor(M_AsyncTensorMap *map, M_AsyncTensor *tensor);
HIDDEN M_WeightsRegistry *copy_weights(const M_WeightsRegistry *weights);
HIDDEN void load_model(void *argument, M_Status *status);
HIDDEN void unload_model(M_AsyncCompiledModel *compiled);
HIDDEN void *model_function(const M_AsyncCompiledModel *compiled, const char *suffix);
HIDDEN bool evaluate(const char *text, const einkorn_model *model, int64_t dims, const int64_t *sizes, int64_t *value);
HIDDEN void execute(M_AsyncModel *model, const M_AsyncTensorMap *inputs, M_AsyncTensorMap *outputs, M_Status *status);
HIDDEN void free_slot(slot *slot);
#endif
