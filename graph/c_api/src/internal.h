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
#include <sys/types.h>

#include "einkorn/runtime.h"

#ifndef HIDDEN /* tests define it as nothing */
#define HIDDEN __attribute__((visibility("hidden")))
#endif

enum { NOT_TRUSTED = -9, NOT_SUPPORTED = -100, NO_FILE = -101, WRONG_FILE = -102 };

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
  pid_t process; /* that started it: its thread is in no other */
  bool has_thread;
  atomic_bool done;
  M_Status status;
} task;

HIDDEN void task_start(task *this, void (*work)(void *, M_Status *), void *argument, bool in_thread);
HIDDEN void task_wait(task *this, M_Status *status);
HIDDEN bool task_end(task *this);

/* Where the elements of outputs and workspaces come from; null functions: the C library. */
typedef struct allocator {
  void *(*allocate)(void *user, size_t alignment, size_t size);
  void (*release)(void *user, void *memory);
  void *user;
} allocator;

HIDDEN void *take_memory(const allocator *allocator, size_t bytes);
HIDDEN void give_memory(const allocator *allocator, void *memory);

/* What a program has said about all models of a context. */
typedef struct settings {
  allocator allocator;
  char *trust; /* the policy; null: the user's */
  void (*log)(void *user, const char *text);
  void *log_user;
} settings;

struct M_RuntimeContext {
  size_t threads;
  settings settings;
};

struct M_Device {
  M_DeviceType type;
  int id;
};

struct M_TensorSpec { /* the shape and the name lie behind it */
  int64_t rank; /* or kDynamicRankValue */
  int64_t *shape;
  M_Dtype dtype;
  char *name;
};

/* Memory of tensors, which the tensors that are in it share. */
typedef struct block {
  atomic_int owners;
  void *data;
  allocator allocator; /* that it came from */
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
  const void *memory; /* of a file, in place of its path */
  size_t size;
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
  settings settings;
  void *library;
  int handle;     /* of the file in memory that the library was loaded from; no file is 0 */
  char *prefix;   /* of the functions in the library */
  void *weights;  /* of a package: mapped, or copied */
  size_t mapped;  /* bytes; 0: `weights` is copied */
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
  const allocator *allocator; /* of the workspace */
} slot;

/* A call that is kept for replays; `busy` while one runs. */
typedef struct capture {
  struct capture *next;
  uint64_t key;
  slot *slot;
  M_AsyncTensorMap *inputs, *outputs;
  atomic_bool busy;
} capture;

struct M_AsyncModel {
  atomic_int owners;
  task task;
  M_AsyncCompiledModel *compiled;
  M_WeightsRegistry *weights;
  pthread_mutex_t lock;
  slot *slots; /* those that no call uses */
  capture *captures;
};

struct M_TensorNameArray {
  size_t count;
  const char **names;
};

/* *** digests *** */

typedef struct digest {
  bool is_long; /* SHA-512 */
  uint64_t state[8], bytes;
  unsigned char block[128];
  size_t held;
} digest;

HIDDEN void digest_start(digest *this, bool is_long);
HIDDEN void digest_add(digest *this, const void *data, size_t size);
HIDDEN void digest_end(digest *this, unsigned char *result);
HIDDEN uint32_t add_crc(uint32_t crc, const void *data, size_t size);
HIDDEN bool verify_signature(const unsigned char *key, const unsigned char *signature, const void *prefix,
                             size_t prefix_size, const void *message, size_t size);

/* *** files *** */

/* A file that is open, or in memory. */
typedef struct file {
  int handle;
  const unsigned char *memory;
  uint64_t size;
  const char *path; /* as messages show it */
} file;

HIDDEN bool read_at(const file *file, uint64_t offset, void *data, uint64_t size);
HIDDEN bool read_file(const char *path, size_t most, bool cut, char **text, size_t *size);
HIDDEN void write_hex(const unsigned char *bytes, size_t count, char *text);
HIDDEN bool open_shared(M_AsyncCompiledModel *compiled, const file *file, const char *name, M_Status *status);

typedef struct member {
  char *name;
  uint64_t start, size;
  uint32_t crc;
} member;

typedef struct archive {
  size_t count;
  member *members;
} archive;

HIDDEN bool read_archive(const file *file, archive *archive, M_Status *status);
HIDDEN void free_archive(archive *archive);
HIDDEN const member *find_member(const archive *archive, const char *name);
HIDDEN bool read_member(const file *file, const member *member, void *data, unsigned char *sha256, M_Status *status);
HIDDEN bool open_package(M_AsyncCompiledModel *compiled, const file *file, bool is_file, const char *name,
                         M_Status *status);

/* *** JSON: values in the order of the text, each before its items *** */

enum { JSON_WORD, JSON_INTEGER, JSON_FRACTION, JSON_TEXT, JSON_LIST, JSON_OBJECT };

typedef struct json_value {
  int kind;
  uint32_t next; /* the number of the value behind it and its items */
  size_t count;  /* of items; of an object: of names, each a text before its value */
  size_t size;   /* of the text, which ends with a zero */
  const char *text;
  int64_t integer;
} json_value;

typedef struct json {
  size_t count, room;
  json_value *values;
  char *texts;
} json;

HIDDEN const char *read_json(json *json, const char *text, size_t size);
HIDDEN void free_json(json *json);
HIDDEN bool has_text(const json_value *value, const char *text);
HIDDEN const json_value *json_field(const json *json, const json_value *object, const char *name);
HIDDEN const json_value *json_next(const json *json, const json_value *item);
HIDDEN bool is_utf8(const char *text, size_t size);
HIDDEN size_t write_utf8(char *place, uint32_t code);

/* *** trust *** */

typedef struct names {
  size_t count, room;
  char **items;
} names;

typedef struct trust_key {
  char *name, *word;
  unsigned char bytes[32];
  char fingerprint[65];
} trust_key;

typedef struct trust_row {
  char *pattern, *level;
  names keys;
  bool has_keys;
} trust_row;

typedef struct policy {
  const char *path;
  size_t key_count, key_room, row_count, row_room;
  trust_key *keys;
  trust_row *rows;
  names revoked;
} policy;

typedef struct signature {
  char fingerprint[65];
  unsigned char bytes[64];
} signature;

/* What a policy looks at. */
typedef struct signed_package {
  const char *path, *name; /* the file, and the name in the manifest */
  bool is_file;
  const char *manifest;
  size_t manifest_size, count;
  signature *signatures;
} signed_package;

HIDDEN bool read_policy(const char *path, policy *policy, M_Status *status);
HIDDEN void free_policy(policy *policy);
HIDDEN const trust_key *policy_key(const policy *policy, const char *name);
HIDDEN bool matches(const char *pattern, const char *name);
HIDDEN bool enforce(const signed_package *package, const settings *settings, M_Status *status);

HIDDEN bool is_dtype(const char *name);
HIDDEN bool copy_settings(const settings *from, settings *to);
HIDDEN bool grow(void **rows, size_t count, size_t *room, size_t size);
HIDDEN M_Dtype dtype_of(const char *name);
HIDDEN M_TensorSpec *new_spec(int64_t rank, M_Dtype dtype, const char *name);
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
HIDDEN slot *new_slot(const M_AsyncCompiledModel *compiled);
HIDDEN void free_slot(slot *slot);
HIDDEN bool execute_in(const M_AsyncCompiledModel *compiled, slot *slot, const M_AsyncTensorMap *inputs,
                       M_AsyncTensorMap *outputs, M_Status *status);
HIDDEN bool run_in(const einkorn_model *model, slot *slot, M_Status *status);
HIDDEN void free_captures(M_AsyncModel *model);
#endif
