// Calls an exported file with the tensors of a request, and writes what becomes of them.
//
//     run_exported LIBRARY NAME REQUEST RESPONSE [in]
//
// With "in" it brings its own workspace, and no thread but its first runs code.
//
// A request: the sizes of dims, and of each tensor its bytes, then the elements of each input; a size of -1 is that of an
// output whose memory the call allocates. A response: the status, the computed sizes, and each tensor; after a failure the
// status and its text. Counts and sizes are int64.
#define _GNU_SOURCE
#include "model.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *request, *response;

static int64_t number(void) {
  int64_t value = 0;
  if (fread(&value, sizeof value, 1, request) != 1) exit(3);
  return value;
}

static void put(int64_t value) { fwrite(&value, sizeof value, 1, response); }

int main(int count, char **arguments) {
  if (count < 5) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 4;
  }
  char symbol[256];
  snprintf(symbol, sizeof symbol, "%s_model", arguments[2]);
  const einkorn_model *model = dlsym(library, symbol);
  request = fopen(arguments[3], "rb");
  response = fopen(arguments[4], "wb");
  if (model == NULL || request == NULL || response == NULL) return 5;
  int64_t dims = model->dims + model->late_dims, tensors = model->inputs + model->outputs;
  int64_t *sizes = calloc((size_t)dims + 1, sizeof *sizes), *bytes = calloc((size_t)tensors + 1, sizeof *bytes);
  void **given = calloc((size_t)tensors + 1, sizeof *given), **late = calloc((size_t)tensors + 1, sizeof *late);
  for (int64_t k = 0; k < model->dims; k++) sizes[k] = number();
  for (int64_t k = 0; k < tensors; k++) bytes[k] = number();
  for (int64_t k = 0; k < tensors; k++) {
    if (bytes[k] < 0) {
      given[k] = &late[k];
      continue;
    }
    given[k] = aligned_alloc(64, ((size_t)bytes[k] + 128) & ~(size_t)63);
    if (k < model->inputs && fread(given[k], 1, (size_t)bytes[k], request) != (size_t)bytes[k]) return 6;
  }
  einkorn_failure failure;
  int32_t status;
  if (count == 5) {
    status = model->call(sizes, given, &failure);
  } else {
    int64_t workspace = model->workspace(sizes);
    if (workspace < 0) return 7;
    status = model->call_in(sizes, given, aligned_alloc(64, (size_t)workspace + 64), &failure);
  }
  put(status);
  if (status != 0) {
    char text[4096];
    fwrite(text, 1, model->describe(&failure, text, sizeof text), response);
    return fclose(response);
  }
  for (int64_t k = model->dims; k < dims; k++) put(sizes[k]);
  for (int64_t k = 0; k < tensors; k++) {
    void *memory = bytes[k] < 0 ? late[k] : given[k];
    int64_t size = bytes[k] < 0 ? (int64_t)malloc_usable_size(memory) : bytes[k];
    put(size);
    fwrite(memory, 1, (size_t)size, response);
  }
  return fclose(response);
}
