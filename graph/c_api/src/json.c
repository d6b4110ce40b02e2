/* Reads JSON strictly, as `dsl.diagnostics.json_reading` does: UTF-8, no name twice in an object, no half characters.
   `NaN` and `Infinity` count as fractions, as in Python. */
#include "internal.h"

enum { MOST_NESTED = 200, MOST_VALUES = 1 << 20 };

typedef struct reader {
  const char *next, *end;
  json *json;
  char *texts; /* where the next text goes: they take no more than the source */
  int nested;
  const char *wrong;
} reader;

static bool refuse(reader *this, const char *what) {
  if (this->wrong == NULL) this->wrong = what;
  return false;
}

bool is_utf8(const char *text, size_t size) {
  const unsigned char *next = (const unsigned char *)text, *end = next + size;
  while (next < end) {
    unsigned first = *next++, code;
    int more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2 : first >> 3 == 30 ? 3 : -1;
    if (more < 0 || end - next < more) return false;
    code = more == 0 ? first : first & (0x3FU >> more);
    for (int k = 0; k < more; k++, next++) {
      if (*next >> 6 != 2) return false;
      code = code << 6 | (*next & 0x3F);
    }
    static const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  }
  return true;
}

size_t write_utf8(char *place, uint32_t code) {
  if (code < 0x80) {
    place[0] = (char)code;
    return 1;
  }
  size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t k = size - 1; k > 0; k--, code >>= 6) place[k] = (char)(0x80 | (code & 0x3F));
  place[0] = (char)((0xF00 >> size & 0xF0) | code);
  return size;
}

static void skip_spaces(reader *this) {
  while (this->next < this->end && strchr(" \t\r\n", *this->next) != NULL && *this->next != 0) this->next++;
}

static bool accept(reader *this, const char *word) {
  size_t size = strlen(word);
  if ((size_t)(this->end - this->next) < size || memcmp(this->next, word, size) != 0) return false;
  this->next += size;
  return true;
}

static uint32_t new_value(reader *this, int kind) {
  json *json = this->json;
  if (json->count >= MOST_VALUES || !grow((void **)&json->values, json->count, &json->room, sizeof *json->values)) {
    refuse(this, "it has too many values");
    return 0;
  }
  json->values[json->count] = (json_value){.kind = kind};
  return (uint32_t)json->count++;
}

static bool read_hex(reader *this, uint32_t *code) {
  *code = 0;
  if (this->end - this->next < 4) return refuse(this, "a character is not whole");
  for (int k = 0; k < 4; k++) {
    char c = *this->next++;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return refuse(this, "a character is not four hexadecimal digits");
    *code = *code << 4 | (uint32_t)digit;
  }
  return true;
}

static bool read_escape(reader *this) {
  static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  uint32_t code, low;
  if (this->next == this->end) return refuse(this, "a text has no end");
  char name = *this->next++;
  if (name != 'u') {
    const char *found = name == 0 ? NULL : strchr(names, name);
    if (found == NULL) return refuse(this, "an escape is unknown");
    *this->texts++ = meanings[found - names];
    return true;
  }
  if (!read_hex(this, &code)) return false;
  if (code >= 0xD800 && code < 0xDC00 && accept(this, "\\u")) {
    if (!read_hex(this, &low)) return false;
    if (low < 0xDC00 || low >= 0xE000) return refuse(this, "it holds half of a surrogate pair, which is not a character");
    code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
  }
  if (code >= 0xD800 && code < 0xE000) return refuse(this, "it holds half of a surrogate pair, which is not a character");
  this->texts += write_utf8(this->texts, code);
  return true;
}

static bool read_text(reader *this, uint32_t number) {
  const char *start = this->texts;
  for (;;) {
    if (this->next == this->end) return refuse(this, "a text has no end");
    char c = *this->next++;
    if (c == '"') break;
    if ((unsigned char)c < 0x20) return refuse(this, "a text holds a control character");
    if (c != '\\')
      *this->texts++ = c;
    else if (!read_escape(this))
      return false;
  }
  this->json->values[number].text = start;
  this->json->values[number].size = (size_t)(this->texts - start);
  *this->texts++ = 0;
  return true;
}

static bool is_digit(const reader *this) { return this->next < this->end && *this->next >= '0' && *this->next <= '9'; }

static bool read_number(reader *this, uint32_t number) {
  json_value *value = &this->json->values[number];
  bool negative = accept(this, "-"), fits = true;
  if (!is_digit(this)) return refuse(this, "a value is expected");
  value->kind = JSON_INTEGER;
  if (!accept(this, "0"))
    for (; is_digit(this); this->next++)
      fits = fits && !__builtin_mul_overflow(value->integer, 10, &value->integer) &&
             !__builtin_add_overflow(value->integer, *this->next - '0', &value->integer);
  if (negative) value->integer = -value->integer;
  if (!fits) value->integer = negative ? INT64_MIN : INT64_MAX; /* none of these is valid where integers are read */
  const char *whole = this->next;
  if (accept(this, ".")) {
    if (!is_digit(this)) {
      this->next = whole;
      return true;
    }
    while (is_digit(this)) this->next++;
    value->kind = JSON_FRACTION;
    whole = this->next;
  }
  if (accept(this, "e") || accept(this, "E")) {
    if (!accept(this, "+")) accept(this, "-");
    if (!is_digit(this)) {
      this->next = whole;
      return true;
    }
    while (is_digit(this)) this->next++;
    value->kind = JSON_FRACTION;
  }
  return true;
}

static bool read_value(reader *this);

static int compare_names(const void *left, const void *right) {
  const json_value *a = *(json_value *const *)left, *b = *(json_value *const *)right;
  size_t size = a->size < b->size ? a->size : b->size;
  int order = memcmp(a->text, b->text, size);
  return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static bool are_different(reader *this, uint32_t number) {
  json_value *values = this->json->values;
  size_t count = 0;
  const json_value **names = malloc((values[number].count + 1) * sizeof *names);
  if (names == NULL) return refuse(this, "there is no memory");
  for (uint32_t k = number + 1; count < values[number].count; k = values[k + 1].next) names[count++] = &values[k];
  qsort(names, count, sizeof *names, compare_names);
  bool differ = true;
  for (size_t k = 1; k < count; k++) differ = differ && compare_names(&names[k - 1], &names[k]) != 0;
  free(names);
  return differ || refuse(this, "an object has a name twice");
}

static bool read_items(reader *this, uint32_t number, bool object) {
  const char *close = object ? "}" : "]";
  size_t count = 0;
  skip_spaces(this);
  if (!accept(this, close)) {
    do {
      if (object) {
        skip_spaces(this);
        if (!accept(this, "\"")) return refuse(this, "a name is expected");
        uint32_t name = new_value(this, JSON_TEXT);
        if (this->wrong != NULL || !read_text(this, name)) return false;
        this->json->values[name].next = (uint32_t)this->json->count;
        skip_spaces(this);
        if (!accept(this, ":")) return refuse(this, "a colon is expected");
      }
      if (!read_value(this)) return false;
      count++;
      skip_spaces(this);
    } while (accept(this, ","));
    if (!accept(this, close)) return refuse(this, "a list or an object has no end");
  }
  this->json->values[number].count = count;
  return !object || are_different(this, number);
}

static bool read_value(reader *this) {
  skip_spaces(this);
  if (this->next == this->end) return refuse(this, "a value is expected");
  if (++this->nested > MOST_NESTED) return refuse(this, "it is nested too deeply");
  uint32_t number = new_value(this, JSON_WORD);
  if (this->wrong != NULL) return false;
  bool read = true;
  if (accept(this, "{")) {
    this->json->values[number].kind = JSON_OBJECT;
    read = read_items(this, number, true);
  } else if (accept(this, "[")) {
    this->json->values[number].kind = JSON_LIST;
    read = read_items(this, number, false);
  } else if (accept(this, "\"")) {
    this->json->values[number].kind = JSON_TEXT;
    read = read_text(this, number);
  } else if (accept(this, "NaN") || accept(this, "Infinity") || accept(this, "-Infinity")) {
    this->json->values[number].kind = JSON_FRACTION;
  } else if (!accept(this, "true") && !accept(this, "false") && !accept(this, "null")) {
    read = read_number(this, number);
  }
  this->nested--;
  this->json->values[number].next = (uint32_t)this->json->count;
  return read;
}

/* Null, or what is wrong. The result is freed in both cases. */
const char *read_json(json *json, const char *text, size_t size) {
  memset(json, 0, sizeof *json);
  if (!is_utf8(text, size)) return "it is not UTF-8 text";
  if ((json->texts = malloc(size + 1)) == NULL) return "there is no memory";
  reader reader = {text, text + size, json, json->texts, 0, NULL};
  if (!read_value(&reader)) return reader.wrong;
  skip_spaces(&reader);
  return reader.next == reader.end ? NULL : "something follows its value";
}

void free_json(json *json) {
  free(json->values);
  free(json->texts);
}

bool has_text(const json_value *value, const char *text) {
  return value->size == strlen(text) && memcmp(value->text, text, value->size) == 0;
}

/* The field of an object; null where there is none. */
const json_value *json_field(const json *json, const json_value *object, const char *name) {
  const json_value *each = object + 1;
  if (object->kind != JSON_OBJECT) return NULL;
  for (size_t k = 0; k < object->count; k++, each = &json->values[each[1].next])
    if (has_text(each, name)) return each + 1;
  return NULL;
}

/* The first item of a list, or the first name of an object, is `value + 1`; this is the next one. */
const json_value *json_next(const json *json, const json_value *item) { return &json->values[item->next]; }
