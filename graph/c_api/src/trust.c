/* Holds packages to the user's trust policy, before anything of them is mapped; as `dsl.package.trust.enforce`. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "einkorn package 1"; /* with its zero: what a signed message begins with */

void write_hex(const unsigned char *bytes, size_t count, char *text) {
  for (size_t k = 0; k < count; k++) snprintf(text + 2 * k, 3, "%02x", bytes[k]);
}

/* A file of at most `most` bytes, with a zero behind it; of a larger one its beginning, if it may be cut. */
bool read_file(const char *path, size_t most, bool cut, char **text, size_t *size) {
  struct stat facts;
  int handle = open(path, O_RDONLY | O_CLOEXEC);
  if (handle < 0) return false;
  bool read = fstat(handle, &facts) == 0 && S_ISREG(facts.st_mode) && (*text = malloc(most + 2)) != NULL;
  for (*size = 0; read && *size <= most;) {
    ssize_t count = pread(handle, *text + *size, most + 1 - *size, (off_t)*size);
    if (count < 0 && errno == EINTR) continue;
    read = count >= 0;
    if (count <= 0) break;
    *size += (size_t)count;
  }
  close(handle);
  if (read && *size > most) {
    read = cut;
    *size = most;
  }
  if (read) (*text)[*size] = 0;
  return read;
}

/* *** patterns: Python's fnmatch *** */

static size_t read_codes(const char *text, uint32_t *codes) {
  size_t count = 0;
  for (const unsigned char *next = (const unsigned char *)text; *next != 0;) {
    int more = *next < 0x80 ? 0 : *next < 0xE0 ? 1 : *next < 0xF0 ? 2 : 3;
    uint32_t code = more == 0 ? *next : *next & (0x3FU >> more);
    for (next++; more > 0 && *next != 0; more--, next++) code = code << 6 | (*next & 0x3F);
    codes[count++] = code;
  }
  return count;
}

/* Whether a character is in the set that begins at `*at`, behind its bracket; moves `*at` behind it. */
static bool is_in_set(const uint32_t *pattern, size_t end, size_t *at, uint32_t code) {
  size_t next = *at;
  bool other = pattern[next] == '!', found = false;
  next += other;
  while (next < end) {
    uint32_t low = pattern[next], high = low;
    next++;
    if (next + 1 < end && pattern[next] == '-') {
      high = pattern[next + 1];
      next += 2;
    }
    found = found || (low <= code && code <= high);
  }
  *at = end + 1;
  return found != other;
}

/* Where the bracket closes, or `size`. */
static size_t end_of_set(const uint32_t *pattern, size_t size, size_t at) {
  if (at < size && pattern[at] == '!') at++;
  if (at < size && pattern[at] == ']') at++;
  while (at < size && pattern[at] != ']') at++;
  return at;
}

static bool match_one(const uint32_t *pattern, size_t size, size_t *at, uint32_t code) {
  uint32_t wanted = pattern[(*at)++];
  if (wanted == '?') return true;
  if (wanted != '[') return wanted == code;
  size_t end = end_of_set(pattern, size, *at);
  return end < size ? is_in_set(pattern, end, at, code) : code == '[';
}

bool matches(const char *pattern_text, const char *name_text) {
  uint32_t *pattern = malloc((strlen(pattern_text) + 1) * sizeof *pattern);
  uint32_t *name = malloc((strlen(name_text) + 1) * sizeof *name);
  bool matched = true; /* also where there is no memory: then the row is checked */
  if (pattern != NULL && name != NULL) {
    size_t size = read_codes(pattern_text, pattern), length = read_codes(name_text, name);
    size_t at = 0, k = 0, star = SIZE_MAX, from = 0;
    while (k < length) {
      size_t next = at;
      if (at < size && pattern[at] == '*') {
        star = ++at;
        from = k;
      } else if (at < size && match_one(pattern, size, &next, name[k])) {
        at = next;
        k++;
      } else if (star != SIZE_MAX) {
        at = star;
        k = ++from;
      } else {
        break;
      }
    }
    while (at < size && pattern[at] == '*') at++;
    matched = k == length && at == size;
  }
  free(pattern);
  free(name);
  return matched;
}

/* *** the user's policy *** */

/* Where a policy is looked for unless EINKORN_TRUST names one; the caller's memory. */
static char *users_path(void) {
  const char *named = getenv("EINKORN_TRUST"), *folder = getenv("XDG_CONFIG_HOME"), *rest = "/einkorn/trust.toml";
  const char *home = getenv("HOME"), *text = named;
  struct passwd *user = NULL;
  if (home == NULL && (user = getpwuid(getuid())) != NULL) home = user->pw_dir;
  if (home == NULL) home = "";
  if (named != NULL && named[strspn(named, " \t\n\r\f\v")] != 0) {
    if (strcmp(named, "~") != 0 && strncmp(named, "~/", 2) != 0) return strdup(named);
    folder = home;
    rest = text + 1;
  } else if (folder == NULL || folder[strspn(folder, " \t\n\r\f\v")] == 0) {
    folder = home;
    rest = "/.config/einkorn/trust.toml";
  }
  char *path = malloc(strlen(folder) + strlen(rest) + 1);
  if (path != NULL) strcat(strcpy(path, folder), rest);
  return path;
}

/* The name of a file without its folder and its last ending. */
static char *stem_of(const char *path) {
  size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') end--;
  size_t start = end;
  while (start > 0 && path[start - 1] != '/') start--;
  for (size_t dot = end - (end > start); dot-- > start + 1;)
    if (path[dot] == '.') {
      end = dot;
      break;
    }
  return strndup(path + start, end - start);
}

static const trust_row *row_for(const policy *policy, const char *name) {
  for (size_t k = 0; k < policy->row_count; k++)
    if (matches(policy->rows[k].pattern, name)) return &policy->rows[k];
  return NULL;
}

static const char *revoked_by(const policy *policy, const char *fingerprint) {
  const char *name = NULL;
  for (size_t k = 0; k < policy->revoked.count; k++) {
    const trust_key *key = policy_key(policy, policy->revoked.items[k]);
    if (strcmp(key->fingerprint, fingerprint) == 0) name = key->name;
  }
  return name;
}

static const trust_key *key_of_row(const policy *policy, const trust_row *row, const char *fingerprint) {
  const trust_key *found = NULL;
  for (size_t k = 0; k < row->keys.count; k++) {
    const trust_key *key = policy_key(policy, row->keys.items[k]);
    if (strcmp(key->fingerprint, fingerprint) == 0) found = key;
  }
  return found;
}

static bool refuse(const policy *policy, const trust_row *row, const signed_package *package, M_Status *status,
                   const char *code, const char *what, const char *name, const char *got) {
  char keys[400] = "";
  for (size_t k = 0; k < row->keys.count && k < 4; k++) {
    const trust_key *key = policy_key(policy, row->keys.items[k]);
    size_t used = strlen(keys);
    snprintf(keys + used, sizeof keys - used, "%s'%.60s' (%.16s)", k > 0 ? ", " : "", key->name, key->fingerprint);
  }
  fail(status, NOT_TRUSTED,
       "error[%s]: '%s' %s%s%s%s\nexpected a signature by %s\ngot %s\n%s: the row for '%s'\n"
       "hint: nothing of it was loaded; fetch it again from where you trust",
       code, package->path, what, name ? "'" : "", name ? name : "", name ? "'" : "", keys, got, policy->path,
       row->pattern);
  return false;
}

static bool check_row(const policy *policy, const trust_row *row, const signed_package *package, M_Status *status) {
  size_t counted = 0;
  const char *revoked = NULL;
  for (size_t k = 0; k < package->count; k++) {
    const signature *each = &package->signatures[k];
    const char *out = revoked_by(policy, each->fingerprint);
    const trust_key *key = key_of_row(policy, row, each->fingerprint);
    if (out != NULL && revoked == NULL) revoked = out;
    if (out != NULL || key == NULL) continue;
    counted++;
    if (!verify_signature(key->bytes, each->bytes, prefix, sizeof prefix, package->manifest, package->manifest_size))
      return refuse(policy, row, package, status, "EK0564",
                    "is not what was signed: its manifest is not that of the signature by key ", key->name,
                    "a signature of something else");
  }
  if (counted > 0) return true;
  if (revoked != NULL)
    return refuse(policy, row, package, status, "EK0565", "is signed by the revoked key ", revoked, "its signature");
  if (package->count == 0) return refuse(policy, row, package, status, "EK0563", "is not signed", NULL, "no signature");
  return refuse(policy, row, package, status, "EK0563", "is not signed by a key that the trust policy accepts", NULL,
                "signatures by other keys");
}

static bool check_policy(const policy *policy, const signed_package *package, const settings *settings, M_Status *status) {
  char *stem = package->is_file ? stem_of(package->path) : strdup(package->name);
  if (stem == NULL) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return false;
  }
  const trust_row *rows[] = {row_for(policy, package->name), row_for(policy, stem)};
  free(stem);
  for (int k = 0; k < 2; k++) {
    if (rows[k] == NULL || (k == 1 && rows[1] == rows[0]) || strcmp(rows[k]->level, "off") == 0) continue;
    if (check_row(policy, rows[k], package, status)) continue;
    if (strcmp(rows[k]->level, "enforce") == 0) return false;
    const char *text = M_getError(status);
    if (settings->log != NULL)
      settings->log(settings->log_user, text);
    else
      fprintf(stderr, "einkorn.trust: %s\nloaded, since the trust policy says warn\n", text);
    succeed(status);
  }
  return true;
}

bool enforce(const signed_package *package, const settings *settings, M_Status *status) {
  struct stat facts;
  const char *named = getenv("EINKORN_TRUST");
  bool required = settings->trust != NULL || (named != NULL && named[strspn(named, " \t\n\r\f\v")] != 0);
  char *path = settings->trust != NULL ? strdup(settings->trust) : users_path();
  policy policy = {0};
  if (path == NULL) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return false;
  }
  bool fine = true;
  if (required || lstat(path, &facts) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
    M_Status own = {0, NULL}; /* a status may be null, and its text is logged */
    fine = read_policy(path, &policy, &own) && check_policy(&policy, package, settings, &own);
    if (!fine) copy_status(status, &own);
    succeed(&own);
  }
  free_policy(&policy);
  free(path);
  return fine;
}
