/* Prints which sentences are nearest to each question: see export_minilm.py. */
#include "minilm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 384, NEAREST = 3, MOST_WORDS = 256 };

typedef struct {
  char text[2000];
  float direction[WIDTH];
} sentence;

/* Reads a line of numbers and text, and computes its direction. */
static int read_sentence(FILE *file, sentence *result) {
  int64_t words[MOST_WORDS], mask[MOST_WORDS], count;
  if (fscanf(file, "%ld", &count) != 1 || count < 1 || count > MOST_WORDS) return -1;
  for (int64_t k = 0; k < count; k++) {
    if (fscanf(file, "%ld", &words[k]) != 1) return -1;
    mask[k] = 1;
  }
  if (!fgets(result->text, sizeof result->text, file)) return -1;
  result->text[strcspn(result->text, "\n")] = 0;

  static float hidden[MOST_WORDS * WIDTH];
  einkorn_failure why;
  int32_t status = minilm(words, mask, 1, count, hidden, result->direction, &why);
  if (status != 0) {
    char message[1000];
    minilm_describe(&why, message, sizeof message);
    fprintf(stderr, "%s\n", message);
  }
  return status;
}

static float likeness(const sentence *a, const sentence *b) {
  float sum = 0;
  for (int k = 0; k < WIDTH; k++) sum += a->direction[k] * b->direction[k];
  return sum;
}

int main(int count, char **arguments) {
  FILE *file = count > 1 ? fopen(arguments[1], "r") : NULL;
  int questions, sentences;
  if (!file || fscanf(file, "%d %d", &questions, &sentences) != 2) return 2;
  sentence *all = calloc((size_t)(questions + sentences), sizeof *all);
  for (int k = 0; k < questions + sentences; k++)
    if (read_sentence(file, &all[k]) != 0) return 1;

  for (int q = 0; q < questions; q++) {
    printf("\n%s\n", all[q].text + 1);
    int shown[NEAREST];
    for (int n = 0; n < NEAREST; n++) {
      int best = -1;
      for (int k = questions; k < questions + sentences; k++) {
        int known = 0;
        for (int m = 0; m < n; m++) known |= shown[m] == k;
        if (!known && (best < 0 || likeness(&all[q], &all[k]) > likeness(&all[q], &all[best]))) best = k;
      }
      shown[n] = best;
      printf("  %.2f  %s\n", (double)likeness(&all[q], &all[best]), all[best].text + 1);
    }
  }
  free(all);
  fclose(file);
  return 0;
}
