/* Computes the sizes of tensors, which a model describes as text: + - * // % ( ) min max ceildiv, numbers and dims. */
#include "internal.h"

#include <ctype.h>

enum { MOST_NESTED = 200 };

typedef struct reader {
  const char *at;
  const einkorn_model *model;
  int64_t dims; /* how many of the sizes are known */
  const int64_t *sizes;
  int nested;
} reader;

static bool read_sum(reader *this, int64_t *value);

static bool accept(reader *this, const char *text) {
  while (*this->at == ' ') this->at++;
  if (strncmp(this->at, text, strlen(text)) != 0) return false;
  this->at += strlen(text);
  return true;
}

/* Division that rounds down, as in Python. */
static bool divide(int64_t left, int64_t right, int64_t *quotient, int64_t *rest) {
  if (right == 0 || (left == INT64_MIN && right == -1)) return false;
  *quotient = left / right;
  *rest = left % right;
  if (*rest != 0 && (*rest < 0) != (right < 0)) {
    *quotient -= 1;
    *rest += right;
  }
  return true;
}

static bool apply(const char *name, size_t length, int64_t left, int64_t right, int64_t *value) {
  int64_t rest;
  if (length == 3 && memcmp(name, "min", 3) == 0)
    *value = left < right ? left : right;
  else if (length == 3 && memcmp(name, "max", 3) == 0)
    *value = left > right ? left : right;
  else if (length == 7 && memcmp(name, "ceildiv", 7) == 0)
    return divide(left, right, value, &rest) && !__builtin_add_overflow(*value, rest != 0, value);
  else
    return false;
  return true;
}

static bool read_name(reader *this, int64_t *value) {
  const char *name = this->at;
  while (isalnum((unsigned char)*this->at) || *this->at == '_') this->at++;
  size_t length = (size_t)(this->at - name);
  if (accept(this, "(")) {
    if (!read_sum(this, value)) return false;
    while (accept(this, ",")) {
      int64_t next;
      if (!read_sum(this, &next) || !apply(name, length, *value, next, value)) return false;
    }
    return accept(this, ")");
  }
  for (int64_t k = 0; k < this->dims; k++)
    if (strlen(this->model->dim_names[k]) == length && memcmp(this->model->dim_names[k], name, length) == 0) {
      *value = this->sizes[k];
      return true;
    }
  return false;
}

static bool read_factor(reader *this, int64_t *value) {
  if (++this->nested > MOST_NESTED) return false;
  bool read = false;
  if (accept(this, "-")) {
    read = read_factor(this, value) && !__builtin_sub_overflow(0, *value, value);
  } else if (accept(this, "(")) {
    read = read_sum(this, value) && accept(this, ")");
  } else if (isdigit((unsigned char)*this->at)) {
    for (*value = 0, read = true; read && isdigit((unsigned char)*this->at); this->at++)
      read = !__builtin_mul_overflow(*value, 10, value) && !__builtin_add_overflow(*value, *this->at - '0', value);
  } else if (isalpha((unsigned char)*this->at) || *this->at == '_') {
    read = read_name(this, value);
  }
  this->nested--;
  return read;
}

static bool read_product(reader *this, int64_t *value) {
  if (!read_factor(this, value)) return false;
  for (;;) {
    int64_t right, quotient, rest;
    bool is_quotient = accept(this, "//"), is_rest = !is_quotient && accept(this, "%");
    if (!is_quotient && !is_rest && !accept(this, "*")) return true;
    if (!read_factor(this, &right)) return false;
    if (is_quotient || is_rest) {
      if (!divide(*value, right, &quotient, &rest)) return false;
      *value = is_rest ? rest : quotient;
    } else if (__builtin_mul_overflow(*value, right, value)) {
      return false;
    }
  }
}

static bool read_sum(reader *this, int64_t *value) {
  if (!read_product(this, value)) return false;
  for (;;) {
    int64_t right;
    bool plus = accept(this, "+");
    if (!plus && !accept(this, "-")) return true;
    if (!read_product(this, &right)) return false;
    if (plus ? __builtin_add_overflow(*value, right, value) : __builtin_sub_overflow(*value, right, value)) return false;
  }
}

/* False: a name is not known, a number too large, or the text is no expression. */
bool evaluate(const char *text, const einkorn_model *model, int64_t dims, const int64_t *sizes, int64_t *value) {
  reader reader = {text, model, dims, sizes, 0};
  return read_sum(&reader, value) && *reader.at == 0;
}
