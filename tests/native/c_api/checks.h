/* What programs that test the C API share: a status for each thread, and checks that count what is wrong. */
#ifndef EINKORN_CHECKS_H
#define EINKORN_CHECKS_H
#include <stdio.h>
#include <string.h>

#include "einkorn/runtime.h"

static _Atomic int failures;
static _Thread_local M_Status *status;
static M_RuntimeContext *context;

#define CHECK(test)                                                               \
  do {                                                                            \
    if (!(test)) {                                                                \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #test, M_getError(status)); \
      failures++;                                                                 \
    }                                                                             \
  } while (0)
#define REFUSED(text) CHECK(M_isError(status) && einkorn_status_code(status) != 0 && strstr(M_getError(status), text))
#define FINE() CHECK(!M_isError(status) && einkorn_status_code(status) == 0 && M_getError(status)[0] == 0)

/* Adds a tensor of one or two axes to a map. */
static void borrow(M_AsyncTensorMap *map, const char *name, M_Dtype dtype, void *data, int64_t rank, int64_t a, int64_t b) {
  M_TensorSpec *spec = M_newTensorSpec((int64_t[]){a, b}, rank, dtype, name, NULL);
  M_borrowTensorInto(map, data, spec, status);
  M_freeTensorSpec(spec);
}
#endif
