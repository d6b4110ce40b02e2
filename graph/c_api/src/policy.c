/* Reads a trust policy: what `dsl.package.trust` takes, and no more.

   The file is TOML. Everything that a policy can say is made of texts, lists and tables, `[keys]` and `[[package]]`; other
   values, and tables in other places, are TOML, and wrong in a policy. */
#include "internal.h"

#include <ctype.h>
#include <stdio.h>

enum { MOST_POLICY = 1 << 20, MOST_KEY_FILE = 1 << 16 };

typedef struct reader {
  const char *next;
  policy *policy;
  M_Status *status;
  char *text; /* the last text or name that was read; as large as the file */
  size_t size;
  bool has_keys, has_rows, has_list; /* which top-level entries stand */
  bool dotted, listed;               /* keys are written as `keys.NAME`; rows as `package = [...]` */
} reader;

static bool wrong(reader *this, const char *what, const char *detail) {
  fail(this->status, NOT_TRUSTED,
       "error[EK0566]: the trust policy '%s' %s%s\nno package is loaded while it cannot be used\n"
       "hint: docs/trust.md shows a policy",
       this->policy->path, what, detail);
  return false;
}

static bool no_toml(reader *this) { return wrong(this, "cannot be read: it is not the TOML of a policy", ""); }

static bool no_memory(reader *this) {
  fail(this->status, EINKORN_NO_MEMORY, "there is no memory");
  return false;
}

/* *** TOML *** */

static void skip_blanks(reader *this) { this->next += strspn(this->next, " \t"); }

static bool accept(reader *this, const char *word) {
  if (strncmp(this->next, word, strlen(word)) != 0) return false;
  this->next += strlen(word);
  return true;
}

static bool is_control(char c) { return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7F; }

static bool skip_comment(reader *this) {
  if (*this->next == '#')
    for (; *this->next != 0 && *this->next != '\n'; this->next++)
      if (is_control(*this->next)) return no_toml(this);
  return true;
}

/* Blanks, comments and ends of lines: between the items of a list. */
static bool skip_lines(reader *this) {
  for (;;) {
    this->next += strspn(this->next, " \t\n");
    if (*this->next != '#') return true;
    if (!skip_comment(this)) return false;
  }
}

static bool end_line(reader *this) {
  skip_blanks(this);
  if (!skip_comment(this)) return false;
  return *this->next == 0 || accept(this, "\n") || no_toml(this);
}

static bool read_escape(reader *this) {
  static const char names[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
  char name = *this->next == 0 ? 0 : *this->next++;
  const char *found = name == 0 ? NULL : strchr(names, name);
  if (found != NULL) {
    this->text[this->size++] = meanings[found - names];
    return true;
  }
  if (name != 'u' && name != 'U') return no_toml(this);
  uint32_t code = 0;
  for (int k = name == 'u' ? 4 : 8; k > 0; k--) {
    char digit = *this->next;
    if (!isxdigit((unsigned char)digit)) return no_toml(this);
    code = code << 4 | (uint32_t)(isdigit((unsigned char)digit) ? digit - '0' : (digit | 32) - 'a' + 10);
    this->next++;
  }
  if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return no_toml(this);
  this->size += write_utf8(this->text + this->size, code);
  return true;
}

static bool read_text(reader *this, bool lines_allowed) {
  char quote = *this->next;
  const char *three = quote == '"' ? "\"\"\"" : "'''";
  bool lines = lines_allowed && accept(this, three);
  if (!lines)
    this->next++;
  else
    accept(this, "\n");
  this->size = 0;
  for (;;) {
    char c = *this->next;
    if (lines && strncmp(this->next, three, 3) == 0) {
      this->next += 3;
      for (int more = 0; more < 2 && *this->next == quote; more++) this->text[this->size++] = *this->next++;
      break;
    }
    if (c == 0 || (is_control(c) && !(lines && c == '\n'))) return no_toml(this);
    this->next++;
    if (!lines && c == quote) break;
    if (c != '\\' || quote == '\'') {
      this->text[this->size++] = c;
      continue;
    }
    const char *line = this->next + strspn(this->next, " \t");
    if (lines && *line == '\n')
      this->next = line + strspn(line, " \t\n");
    else if (!read_escape(this))
      return false;
  }
  this->text[this->size] = 0;
  return true;
}

static bool read_name(reader *this) {
  skip_blanks(this);
  if (*this->next == '"' || *this->next == '\'') {
    if (!read_text(this, false)) return false;
  } else {
    size_t size = 0;
    while (isalnum((unsigned char)this->next[size]) || this->next[size] == '_' || this->next[size] == '-') size++;
    if (size == 0) return no_toml(this);
    memcpy(this->text, this->next, size);
    this->text[this->size = size] = 0;
    this->next += size;
  }
  skip_blanks(this);
  return true;
}

static char *copied(reader *this) {
  char *copy = strdup(this->text);
  if (copy == NULL) no_memory(this);
  return copy;
}

static bool read_one(reader *this, const char *what) {
  if (*this->next != '"' && *this->next != '\'') return wrong(this, "holds something else than a text for ", what);
  return read_text(this, true);
}

/* A list: `item` reads each. */
static bool read_list(reader *this, bool (*item)(reader *), const char *what) {
  if (!accept(this, "[")) return wrong(this, "holds something else than a list for ", what);
  for (;;) {
    if (!skip_lines(this)) return false;
    if (accept(this, "]")) return true;
    if (!item(this) || !skip_lines(this)) return false;
    if (accept(this, ",")) continue;
    return accept(this, "]") || no_toml(this);
  }
}

/* A table within braces: `entry` reads each after its name, which is `text`, and the sign. */
static bool read_table(reader *this, bool (*entry)(reader *), const char *what) {
  if (!accept(this, "{")) return wrong(this, "holds something else than a table for ", what);
  skip_blanks(this);
  if (accept(this, "}")) return true;
  do {
    if (!read_name(this)) return false;
    if (!accept(this, "=")) return no_toml(this);
    skip_blanks(this);
    if (!entry(this)) return false;
    skip_blanks(this);
  } while (accept(this, ","));
  return accept(this, "}") || no_toml(this);
}

/* *** the policy *** */

static bool add_name(reader *this, names *names) {
  if (!grow((void **)&names->items, names->count, &names->room, sizeof *names->items)) return no_memory(this);
  char *copy = copied(this);
  if (copy != NULL) names->items[names->count++] = copy;
  return copy != NULL;
}

static bool revoked_item(reader *this) { return read_one(this, "'revoked'") && add_name(this, &this->policy->revoked); }

static trust_row *last_row(reader *this) { return &this->policy->rows[this->policy->row_count - 1]; }

static bool row_key(reader *this) { return read_one(this, "'keys'") && add_name(this, &last_row(this)->keys); }

/* An entry of a row. */
static bool row_entry(reader *this) {
  trust_row *row = last_row(this);
  if (strcmp(this->text, "keys") == 0) {
    if (row->has_keys) return no_toml(this);
    row->has_keys = true;
    return read_list(this, row_key, "'keys'");
  }
  bool name = strcmp(this->text, "name") == 0;
  if (!name && strcmp(this->text, "policy") != 0) return wrong(this, "has an unknown entry in a package: ", this->text);
  char **place = name ? &row->pattern : &row->level;
  if (*place != NULL) return no_toml(this);
  if (!read_one(this, name ? "'name'" : "'policy'")) return false;
  *place = copied(this);
  return *place != NULL;
}

static bool add_row(reader *this) {
  policy *policy = this->policy;
  if (!grow((void **)&policy->rows, policy->row_count, &policy->row_room, sizeof *policy->rows)) return no_memory(this);
  policy->rows[policy->row_count++] = (trust_row){0};
  return true;
}

static bool row_item(reader *this) { return add_row(this) && read_table(this, row_entry, "a package"); }

/* An entry of [keys]: its name stands in `text`, its value follows. */
static bool key_entry(reader *this) {
  policy *policy = this->policy;
  for (size_t k = 0; k < policy->key_count; k++)
    if (strcmp(policy->keys[k].name, this->text) == 0) return no_toml(this);
  if (!grow((void **)&policy->keys, policy->key_count, &policy->key_room, sizeof *policy->keys)) return no_memory(this);
  trust_key *key = &policy->keys[policy->key_count];
  *key = (trust_key){0};
  if ((key->name = copied(this)) == NULL) return false;
  policy->key_count++;
  if (!read_one(this, "a key")) return false;
  return (key->word = copied(this)) != NULL;
}

/* An entry outside of all tables. */
static bool first_entry(reader *this) {
  bool keys = strcmp(this->text, "keys") == 0, dotted = keys && accept(this, ".");
  if (dotted) {
    if (this->has_keys && !this->dotted) return no_toml(this);
    this->has_keys = this->dotted = true;
    if (!read_name(this)) return false;
  }
  bool list = strcmp(this->text, "revoked") == 0 && !dotted;
  if (!dotted && !keys && !list && strcmp(this->text, "package") != 0)
    return wrong(this, "has an unknown entry: ", this->text);
  if (!accept(this, "=")) return no_toml(this);
  skip_blanks(this);
  if (dotted) return key_entry(this);
  bool *stands = keys ? &this->has_keys : list ? &this->has_list : &this->has_rows;
  if (*stands) return no_toml(this);
  *stands = true;
  if (keys) return read_table(this, key_entry, "'keys'");
  if (list) return read_list(this, revoked_item, "'revoked'");
  this->listed = true;
  return read_list(this, row_item, "'package'");
}

static bool read_header(reader *this, bool (**entry)(reader *)) {
  bool rows = accept(this, "[");
  if (!read_name(this)) return false;
  if (strcmp(this->text, rows ? "package" : "keys") != 0)
    return wrong(this, "has a table that policies do not have: ", this->text);
  if (!accept(this, rows ? "]]" : "]")) return no_toml(this);
  if (rows ? this->listed : this->has_keys) return no_toml(this);
  *(rows ? &this->has_rows : &this->has_keys) = true;
  *entry = rows ? row_entry : key_entry;
  return !rows || add_row(this);
}

static bool read_toml(reader *this) {
  bool (*entry)(reader *) = first_entry;
  for (;;) {
    if (!skip_lines(this)) return false;
    if (*this->next == 0) return true;
    if (accept(this, "[")) {
      if (!read_header(this, &entry)) return false;
    } else {
      if (!read_name(this)) return false;
      if (entry != first_entry) {
        if (!accept(this, "=")) return no_toml(this);
        skip_blanks(this);
      }
      if (!entry(this)) return false;
    }
    if (!end_line(this)) return false;
  }
}

/* *** keys *** */

/* Base64 with its padding and nothing else; the number of bytes, or -1. */
static int read_base64(const char *text, size_t size, unsigned char *bytes, int room) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t length = size;
  while (length > 0 && size - length < 2 && text[length - 1] == '=') length--;
  if (size % 4 != 0 || (size - length) != (4 - length % 4) % 4) return -1;
  int count = 0;
  uint32_t held = 0;
  for (size_t k = 0; k < length; k++) {
    const char *digit = text[k] == 0 ? NULL : strchr(digits, text[k]);
    if (digit == NULL) return -1;
    held = held << 6 | (uint32_t)(digit - digits);
    if (k % 4 == 0) continue;
    if (count == room) return -1;
    bytes[count++] = (unsigned char)(held >> (6 - 2 * (k % 4)));
  }
  return count;
}

static bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31); }

/* The first block of a PEM file that is whole: its kind, and its bytes. */
static bool read_pem(char *text, const char **kind, unsigned char *bytes, int room, int *count) {
  for (char *start = text; (start = strstr(start, "-----BEGIN ")) != NULL; start++) {
    char *label = start + 11, *next = label, ending[80];
    while ((*next >= 'A' && *next <= 'Z') || *next == ' ') next++;
    size_t size = (size_t)(next - label);
    if (size == 0 || size > 40 || strncmp(next, "-----", 5) != 0 || !is_space(next[5])) continue;
    char *body = next + 5, *end = body, *kept = body;
    while (isalnum((unsigned char)*end) || is_space(*end) || (*end != 0 && strchr("+/=", *end) != NULL)) end++;
    snprintf(ending, sizeof ending, "-----END %.*s-----", (int)size, label);
    if (strncmp(end, ending, strlen(ending)) != 0) continue;
    for (char *c = body; c < end; c++)
      if (!is_space(*c)) *kept++ = *c;
    if (kept == body) continue;
    *next = 0;
    *kind = label;
    *count = read_base64(body, (size_t)(kept - body), bytes, room);
    return *count >= 0;
  }
  return false;
}

static const unsigned char public_head[12] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

static bool wrong_key(reader *this, const char *path, const char *what) {
  fail(this->status, NOT_TRUSTED, "error[EK0567]: '%s' %s", path, what);
  return false;
}

static bool read_key_file(reader *this, trust_key *key) {
  const char *slash = strrchr(this->policy->path, '/'), *kind;
  size_t folder = key->word[0] == '/' || slash == NULL ? 0 : (size_t)(slash - this->policy->path) + 1;
  char *path = malloc(folder + strlen(key->word) + 1), *text = NULL;
  if (path == NULL) return no_memory(this);
  memcpy(path, this->policy->path, folder);
  strcpy(path + folder, key->word);
  unsigned char bytes[44];
  int count = 0;
  bool read = false;
  size_t size;
  if (!read_file(path, MOST_KEY_FILE, true, &text, &size))
    wrong_key(this, path, "cannot be read");
  else if (!read_pem(text, &kind, bytes, sizeof bytes, &count))
    wrong_key(this, path, "is not a key in PEM form");
  else if (strcmp(kind, "PUBLIC KEY") != 0)
    wrong_key(this, path, "holds no public key");
  else if (count != 44 || memcmp(bytes, public_head, sizeof public_head) != 0)
    wrong_key(this, path, "holds another kind of public key");
  else {
    memcpy(key->bytes, bytes + sizeof public_head, 32);
    read = true;
  }
  free(text);
  free(path);
  return read;
}

static bool read_key(reader *this, trust_key *key) {
  static const char inline_head[] = "ed25519:";
  if (strncmp(key->word, inline_head, strlen(inline_head)) == 0) {
    const char *word = key->word + strlen(inline_head);
    if (read_base64(word, strlen(word), key->bytes, 32) != 32)
      return wrong(this, "has a key that is not 'ed25519:' and 32 bytes in base64: ", key->name);
  } else if (!read_key_file(this, key)) {
    return false;
  }
  digest digest;
  unsigned char hash[32];
  digest_start(&digest, false);
  digest_add(&digest, public_head, sizeof public_head);
  digest_add(&digest, key->bytes, 32);
  digest_end(&digest, hash);
  write_hex(hash, 32, key->fingerprint);
  return true;
}

static bool check_names(reader *this, const names *names, const char *what) {
  for (size_t k = 0; k < names->count; k++)
    if (policy_key(this->policy, names->items[k]) == NULL) return wrong(this, what, names->items[k]);
  return true;
}

static bool check_policy(reader *this) {
  policy *policy = this->policy;
  for (size_t k = 0; k < policy->key_count; k++)
    if (!read_key(this, &policy->keys[k])) return false;
  for (size_t k = 0; k < policy->row_count; k++) {
    const trust_row *row = &policy->rows[k];
    if (row->pattern == NULL) return wrong(this, "lacks 'name' in a package", "");
    if (row->level == NULL) return wrong(this, "lacks 'policy' in a package", "");
    bool off = strcmp(row->level, "off") == 0;
    if (!off && strcmp(row->level, "warn") != 0 && strcmp(row->level, "enforce") != 0)
      return wrong(this, "has a 'policy' that is not one of off, warn, enforce: ", row->level);
    if (!check_names(this, &row->keys, "names a key in a package that [keys] does not have: ")) return false;
    if (!off && row->keys.count == 0) return wrong(this, "names no keys in a package whose policy is ", row->level);
  }
  return check_names(this, &policy->revoked, "names a key in 'revoked' that [keys] does not have: ");
}

const trust_key *policy_key(const policy *policy, const char *name) {
  for (size_t k = 0; k < policy->key_count; k++)
    if (strcmp(policy->keys[k].name, name) == 0) return &policy->keys[k];
  return NULL;
}

/* Fills the policy, which is freed in both cases; it keeps the path. */
bool read_policy(const char *path, policy *policy, M_Status *status) {
  memset(policy, 0, sizeof *policy);
  policy->path = path;
  reader reader = {.policy = policy, .status = status};
  char *source = NULL;
  size_t size, kept = 0;
  bool read = read_file(path, MOST_POLICY, false, &source, &size);
  if (!read)
    wrong(&reader, "cannot be read", "");
  else if (strlen(source) != size || !is_utf8(source, size))
    read = no_toml(&reader);
  else if ((reader.text = malloc(size + 8)) == NULL)
    read = no_memory(&reader);
  if (read) {
    for (size_t k = 0; k < size; k++)
      if (source[k] != '\r' || source[k + 1] != '\n') source[kept++] = source[k];
    source[kept] = 0;
    reader.next = source;
    read = read_toml(&reader) && check_policy(&reader);
  }
  free(source);
  free(reader.text);
  return read;
}

static void free_names(names *names) {
  for (size_t k = 0; k < names->count; k++) free(names->items[k]);
  free(names->items);
}

void free_policy(policy *policy) {
  for (size_t k = 0; k < policy->key_count; k++) {
    free(policy->keys[k].name);
    free(policy->keys[k].word);
  }
  for (size_t k = 0; k < policy->row_count; k++) {
    free(policy->rows[k].pattern);
    free(policy->rows[k].level);
    free_names(&policy->rows[k].keys);
  }
  free(policy->keys);
  free(policy->rows);
  free_names(&policy->revoked);
}
