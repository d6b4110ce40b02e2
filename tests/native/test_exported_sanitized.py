"""A C program under gcc's sanitizers calls an exported file in threads with stacks of many sizes, and after a fork."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import graphs
from support.exported import attention

F32 = np.float32
GCC = shutil.which("gcc")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]

PROGRAM = """
#include "attn.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { B = 300, K = 200, N = 250, STACKS = 8 };
static float *x, *w, *expected;
static void *workspace[STACKS];

/* The plain form gives the result with every stack; attn_in does, or says that the stack is too small. */
static void *work(void *place) {
  float *y = malloc(sizeof(float) * B * K);
  einkorn_failure why;
  int32_t status = attn(x, w, B, K, N, y, &why);
  long wrong = status != 0 || memcmp(y, expected, sizeof(float) * B * K) != 0;
  memset(y, 0, sizeof(float) * B * K);
  status = attn_in(x, w, B, K, N, y, place, &why);
  wrong += status == 0 ? memcmp(y, expected, sizeof(float) * B * K) != 0 : status != EINKORN_SMALL_STACK;
  char text[200];
  if (status != 0) attn_describe(&why, text, sizeof text);
  free(y);
  return (void *)wrong;
}

static long in_threads(void) {
  pthread_t threads[STACKS];
  long wrong = 0;
  for (int k = 0; k < STACKS; k++) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)(64 << 10) << k); /* 64 KiB to 8 MiB */
    if (pthread_create(&threads[k], &attributes, work, workspace[k]) != 0) abort();
    pthread_attr_destroy(&attributes);
  }
  for (int k = 0; k < STACKS; k++) {
    void *result;
    pthread_join(threads[k], &result);
    wrong += (long)result;
  }
  return wrong;
}

int main(void) {
  x = malloc(sizeof(float) * B * K);
  w = malloc(sizeof(float) * K * N);
  expected = malloc(sizeof(float) * B * K);
  for (int k = 0; k < B * K; k++) x[k] = (float)(k % 17) * 0.1f;
  for (int k = 0; k < K * N; k++) w[k] = 0.5f - (float)(k % 13) * 0.07f;
  attn_set_threads(1);
  einkorn_failure why;
  if (attn(x, w, B, K, N, expected, &why) != 0) return 1;
  int64_t bytes = attn_workspace(B, K, N);
  for (int k = 0; k < STACKS; k++) workspace[k] = aligned_alloc(64, (size_t)bytes); /* not a byte more */
  attn_set_threads(2);
  if (in_threads() != 0) return 2;
  pid_t child = fork(); /* the parent has workers, the child has none */
  if (child == 0) _exit(work(workspace[0]) != 0 ? 3 : 0);
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) return 4;
  if (in_threads() != 0) return 5;
  attn_close();
  child = fork();
  if (child == 0) {
    attn_close();
    long wrong = in_threads();
    attn_close();
    _exit(wrong != 0 ? 6 : 0);
  }
  if (waitpid(child, &status, 0) != child || status != 0) return 7;
  for (int k = 0; k < STACKS; k++) free(workspace[k]);
  free(x);
  free(w);
  free(expected);
  puts("as expected");
  return 0;
}
"""


@pytest.mark.skipif(GCC is None, reason="there is no gcc")
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    assert GCC is not None
    model = graphs.load(attention, (F32, ("b", "k")), (F32, ("k", "n")))
    model.export(tmp_path / "libattn.so", header=tmp_path / "attn.h", name="attn", targets="host")
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    probe = subprocess.run([GCC, *SANITIZERS, "a.c", "-o", "a"], cwd=tmp_path, capture_output=True, check=False)
    if probe.returncode or subprocess.run([tmp_path / "a"], capture_output=True, check=False).returncode:
        pytest.skip("gcc has no sanitizers that run here")
    (tmp_path / "program.c").write_text(PROGRAM)
    command = [GCC, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *SANITIZERS, "program.c", "./libattn.so", "-lpthread"]
    subprocess.run([*command, "-lm", "-Wl,-rpath,$ORIGIN", "-o", "program"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "program"], env=os.environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "as expected\n"), done.stderr[-3000:]
