// Times the functions of an exported file: loading, calls, calls with a prepared plan, sizes and workspaces.
//
//     export_model LIBRARY THREADS CALLS SIZES...
//
// The model is called `model`. Compiled with -DSMALL it is called by its plain function, as a model of one vector. Times are
// nanoseconds: of one thread those of the processor, of several those of the clock.
#include "model.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM = 1 << 22, MOST = 16 };

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define TIMED(clock, count, statement)                          \
  ({                                                            \
    double begin_ = now(clock);                                 \
    for (int n_ = 0; n_ < (count); n_++) statement;             \
    (now(clock) - begin_) / (count);                            \
  })

int main(int count, char **arguments) {
  double start = now(CLOCK_MONOTONIC);
  void *library = dlopen(arguments[1], RTLD_NOW);
  double load = now(CLOCK_MONOTONIC) - start;
  if (library == NULL) return 2;
  const einkorn_model *model = dlsym(library, "model_model");
  void (*set_threads)(int64_t) = dlsym(library, "model_set_threads");
  int threads = atoi(arguments[2]), calls = atoi(arguments[3]);
  set_threads(threads);
  int64_t sizes[MOST];
  for (int k = 4; k < count && k < MOST + 4; k++) sizes[k - 4] = atoll(arguments[k]);
  void *tensors[MOST];
  for (int64_t k = 0; k < model->inputs + model->outputs; k++) tensors[k] = memset(aligned_alloc(64, ROOM), 0, ROOM);
  void *workspace = aligned_alloc(64, (size_t)model->workspace(sizes) + 64);
  void *plan = malloc((size_t)model->plan_bytes);
  clockid_t clock = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  if (model->prepare(sizes, plan, NULL) || model->call_in(sizes, tensors, workspace, NULL)) return 3;
#ifdef SMALL
  int32_t (*function)(const float *, int64_t, float *, einkorn_failure *) = dlsym(library, "model");
  double call = TIMED(clock, calls, function(tensors[0], sizes[0], tensors[1], NULL));
#else
  double call = TIMED(clock, calls, model->call_in(sizes, tensors, workspace, NULL));
#endif
  double run = TIMED(clock, calls, model->run(plan, tensors, workspace, NULL));
  volatile int64_t bytes = 0;
  double sizing = TIMED(CLOCK_PROCESS_CPUTIME_ID, 20000, bytes += model->workspace(sizes));
  printf("{\"load\": %f, \"call\": %f, \"run\": %f, \"plan\": %f, ", load, call, run, sizing);
  printf("\"workspace\": %ld, \"stack\": %ld}\n", (long)model->workspace(sizes), (long)model->stack_bytes);
  return 0;
}
