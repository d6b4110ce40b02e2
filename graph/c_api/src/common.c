/* Status objects, tasks, dtypes, devices, configurations, contexts. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#ifndef EINKORN_VERSION
#define EINKORN_VERSION "0"
#endif

struct M_RuntimeConfig {
  size_t threads;
  settings settings;
};

const char *M_version(void) { return EINKORN_VERSION; }

M_Status *M_newStatus(void) { return calloc(1, sizeof(M_Status)); }

const char *M_getError(const M_Status *status) {
  if (status == NULL || status->code == 0) return "";
  return status->text == NULL ? "there is no memory" : status->text;
}

int M_isError(const M_Status *status) { return status != NULL && status->code != 0; }

int32_t einkorn_status_code(const M_Status *status) { return status == NULL ? 0 : status->code; }

void M_freeStatus(M_Status *status) {
  succeed(status);
  free(status);
}

void succeed(M_Status *status) {
  if (status == NULL) return;
  free(status->text);
  status->text = NULL;
  status->code = 0;
}

void fail(M_Status *status, int32_t code, const char *format, ...) {
  if (status == NULL) return;
  succeed(status);
  status->code = code;
  va_list values;
  va_start(values, format);
  int length = vsnprintf(NULL, 0, format, values);
  va_end(values);
  if (length < 0 || (status->text = malloc((size_t)length + 1)) == NULL) return;
  va_start(values, format);
  vsnprintf(status->text, (size_t)length + 1, format, values);
  va_end(values);
}

void copy_status(M_Status *to, const M_Status *from) {
  if (from->code == 0)
    succeed(to);
  else
    fail(to, from->code, "%s", M_getError(from));
}

void fail_model(M_Status *status, const einkorn_model *model, const einkorn_failure *why) {
  if (status == NULL) return;
  size_t length = model->describe(why, NULL, 0);
  char *text = malloc(length + 1);
  if (text != NULL) model->describe(why, text, length + 1);
  fail(status, why->status, "%s", text == NULL ? "there is no memory" : text);
  free(text);
}

bool grow(void **rows, size_t count, size_t *room, size_t size) {
  if (count < *room) return true;
  size_t wanted = *room == 0 ? 8 : 2 * *room;
  void *larger = wanted > SIZE_MAX / size ? NULL : realloc(*rows, wanted * size);
  if (larger == NULL) return false;
  *rows = larger;
  *room = wanted;
  return true;
}

/* *** tasks *** */

static void *task_run(void *argument) {
  task *this = argument;
  this->work(this->argument, &this->status);
  pthread_mutex_lock(&this->lock);
  atomic_store_explicit(&this->done, true, memory_order_release);
  pthread_cond_broadcast(&this->changed);
  pthread_mutex_unlock(&this->lock);
  return NULL;
}

void task_start(task *this, void (*work)(void *, M_Status *), void *argument, bool in_thread) {
  this->work = work;
  this->argument = argument;
  this->process = getpid();
  pthread_mutex_init(&this->lock, NULL);
  pthread_cond_init(&this->changed, NULL);
  this->has_thread = in_thread && pthread_create(&this->thread, NULL, task_run, this) == 0;
  if (!this->has_thread) task_run(this);
}

void task_wait(task *this, M_Status *status) {
  if (!atomic_load_explicit(&this->done, memory_order_acquire)) {
    if (this->process != getpid()) {
      fail(status, NOT_SUPPORTED, "this was started before a fork, and its thread is in the parent process: wait for it first");
      return;
    }
    pthread_mutex_lock(&this->lock);
    while (!this->done) pthread_cond_wait(&this->changed, &this->lock);
    pthread_mutex_unlock(&this->lock);
  }
  copy_status(status, &this->status);
}

/* After a fork the thread, the lock and what the thread works on stay as they were: they are the parent's. */
bool task_end(task *this) {
  bool own = this->process == getpid();
  if (!own && this->has_thread && !atomic_load(&this->done)) return false;
  if (this->has_thread && own) pthread_join(this->thread, NULL);
  if (!own) {
    succeed(&this->status);
    return true;
  }
  pthread_cond_destroy(&this->changed);
  pthread_mutex_destroy(&this->lock);
  succeed(&this->status);
  return true;
}

/* *** dtypes *** */

static const struct {
  M_Dtype dtype;
  const char *name;
  size_t bits;
} dtypes[] = {
    {M_BOOL, "bool", 8},
    {M_INT4, "int4", 4},
    {M_UINT4, "uint4", 4},
    {M_INT8, "int8", 8},
    {M_UINT8, "uint8", 8},
    {M_INT16, "int16", 16},
    {M_UINT16, "uint16", 16},
    {M_INT32, "int32", 32},
    {M_UINT32, "uint32", 32},
    {M_INT64, "int64", 64},
    {M_UINT64, "uint64", 64},
    {M_FLOAT4_E2M1FN, "float4_e2m1fn", 4},
    {M_FLOAT8_E8M0FNU, "float8_e8m0fnu", 8},
    {M_FLOAT8_E4M3FN, "float8_e4m3fn", 8},
    {M_FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", 8},
    {M_FLOAT8_E5M2, "float8_e5m2", 8},
    {M_FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", 8},
    {M_FLOAT16, "float16", 16},
    {M_BFLOAT16, "bfloat16", 16},
    {M_FLOAT32, "float32", 32},
    {M_FLOAT64, "float64", 64},
};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

M_Dtype dtype_of(const char *name) {
  for (size_t k = 0; k < DTYPES; k++)
    if (strcmp(dtypes[k].name, name) == 0) return dtypes[k].dtype;
  return M_UNKNOWN;
}

/* Whether tensors of packages can have a dtype: those above, and some that M_Dtype lacks. */
bool is_dtype(const char *name) {
  static const char *const others[] = {"float6_e2m3fn", "float6_e3m2fn", "complex64", "complex128"};
  for (size_t k = 0; k < sizeof others / sizeof *others; k++)
    if (strcmp(others[k], name) == 0) return true;
  return dtype_of(name) != M_UNKNOWN;
}

const char *einkorn_dtype_name(M_Dtype dtype) {
  for (size_t k = 0; k < DTYPES; k++)
    if (dtypes[k].dtype == dtype) return dtypes[k].name;
  return "unknown";
}

size_t einkorn_dtype_bits(M_Dtype dtype) {
  for (size_t k = 0; k < DTYPES; k++)
    if (dtypes[k].dtype == dtype) return dtypes[k].bits;
  return 0;
}

/* *** devices and contexts *** */

M_Device *M_newDevice(M_DeviceType type, int id, M_Status *status) {
  if (type != M_HOST || id != 0) {
    fail(status, NOT_SUPPORTED, "error[EK0430]: the C API has the host alone: (M_HOST, 0), not (%d, %d)", (int)type, id);
    return NULL;
  }
  M_Device *device = calloc(1, sizeof *device);
  if (device == NULL)
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  else
    succeed(status);
  return device;
}

void M_freeDevice(M_Device *device) { free(device); }

M_RuntimeConfig *M_newRuntimeConfig(void) { return calloc(1, sizeof(M_RuntimeConfig)); }

void M_setNumThreads(M_RuntimeConfig *config, size_t threads) {
  if (config != NULL) config->threads = threads;
}

/* The host is the only device, and every context has it. */
void M_runtimeConfigAddDevice(M_RuntimeConfig *config, M_Device *device) {
  (void)config;
  (void)device;
}

void einkorn_set_trust(M_RuntimeConfig *config, const char *path) {
  if (config == NULL) return;
  free(config->settings.trust);
  config->settings.trust = path == NULL ? NULL : strdup(path);
}

void einkorn_set_log(M_RuntimeConfig *config, void (*log)(void *user, const char *text), void *user) {
  if (config == NULL) return;
  config->settings.log = log;
  config->settings.log_user = user;
}

void einkorn_set_allocator(M_RuntimeConfig *config, void *(*allocate)(void *user, size_t alignment, size_t size),
                           void (*release)(void *user, void *memory), void *user) {
  if (config != NULL) config->settings.allocator = (allocator){allocate, release, user};
}

/* Memory that begins at a multiple of 64; of none, too. */
void *take_memory(const allocator *allocator, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  size_t size = (bytes + 64) / 64 * 64;
  return allocator->allocate == NULL ? aligned_alloc(64, size) : allocator->allocate(allocator->user, 64, size);
}

void give_memory(const allocator *allocator, void *memory) {
  if (memory == NULL) return;
  if (allocator->release == NULL)
    free(memory);
  else
    allocator->release(allocator->user, memory);
}

bool copy_settings(const settings *from, settings *to) {
  *to = *from;
  to->trust = from->trust == NULL ? NULL : strdup(from->trust);
  return from->trust == NULL || to->trust != NULL;
}

void M_freeRuntimeConfig(M_RuntimeConfig *config) {
  if (config == NULL) return;
  free(config->settings.trust);
  free(config);
}

M_RuntimeContext *M_newRuntimeContext(const M_RuntimeConfig *config, M_Status *status) {
  M_RuntimeContext *context = NULL;
  if (config == NULL)
    fail(status, EINKORN_WRONG_ARGUMENT, "M_newRuntimeContext: 'config' is null");
  else if ((config->settings.allocator.allocate == NULL) != (config->settings.allocator.release == NULL))
    fail(status, EINKORN_WRONG_ARGUMENT, "einkorn_set_allocator: '%s' is null, and '%s' is not",
         config->settings.allocator.allocate == NULL ? "allocate" : "release",
         config->settings.allocator.allocate == NULL ? "release" : "allocate");
  else if ((context = calloc(1, sizeof *context)) == NULL || !copy_settings(&config->settings, &context->settings)) {
    free(context);
    context = NULL;
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  } else {
    context->threads = config->threads;
    succeed(status);
  }
  return context;
}

void M_freeRuntimeContext(M_RuntimeContext *context) {
  if (context == NULL) return;
  free(context->settings.trust);
  free(context);
}

/* Files are compiled before, and the runtime prints nothing: these are accepted and change nothing. */
void M_setDebugPrintOptions(M_RuntimeContext *context, M_ResultOutputStyle style, unsigned int precision,
                            const char *directory) {
  (void)context;
  (void)style;
  (void)precision;
  (void)directory;
}

void M_setMojoDefineBool(M_RuntimeContext *context, const char *key, bool value) {
  (void)context;
  (void)key;
  (void)value;
}

void M_setMojoDefineInt(M_RuntimeContext *context, const char *key, int value) {
  (void)context;
  (void)key;
  (void)value;
}

void M_setMojoDefineString(M_RuntimeContext *context, const char *key, const char *value) {
  (void)context;
  (void)key;
  (void)value;
}
