/* Reads the zip file under a package. It takes those that `dsl.package.archive` writes, and no others: members that are
   stored, one after the other, whose headers and directory are the only ones that they can have. */
#include "internal.h"

#include <errno.h>
#include <unistd.h>

#define FULL UINT64_C(0xFFFFFFFF)
#define FETCH "fetch it again, or build it again with `einkorn build`"

enum { PAGE = 4096, MOST_NAME = 1000, DATE_1980 = 0x21, UTF8_NAME = 0x800, MODE = 0100644 };

bool read_at(const file *file, uint64_t offset, void *data, uint64_t size) {
  if (offset > file->size || size > file->size - offset) return false;
  if (file->memory != NULL) {
    if (size > 0) memcpy(data, file->memory + offset, size);
    return true;
  }
  for (char *next = data; size > 0;) {
    ssize_t count = pread(file->handle, next, size, (off_t)offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    next += count;
    offset += (uint64_t)count;
    size -= (uint64_t)count;
  }
  return true;
}

static unsigned char *put(unsigned char *place, uint64_t value, int bytes) {
  for (int k = 0; k < bytes; k++) *place++ = (unsigned char)(value >> 8 * k);
  return place;
}

static uint64_t get(const unsigned char *place, int bytes) {
  uint64_t value = 0;
  for (int k = bytes - 1; k >= 0; k--) value = value << 8 | place[k];
  return value;
}

static uint64_t capped(uint64_t value) { return value < FULL ? value : FULL; }

/* The extra field with those numbers that do not fit 32 bits. */
static unsigned char *put_long(unsigned char *place, int count, const uint64_t *numbers) {
  int wanted = 0;
  for (int k = 0; k < count; k++) wanted += numbers[k] >= FULL;
  if (wanted == 0) return place;
  place = put(put(place, 1, 2), (uint64_t)(8 * wanted), 2);
  for (int k = 0; k < count; k++)
    if (numbers[k] >= FULL) place = put(place, numbers[k], 8);
  return place;
}

static int long_size(int count, const uint64_t *numbers) {
  unsigned char place[28];
  return (int)(put_long(place, count, numbers) - place);
}

/* The local header, without the zeros at its end. */
static size_t local_header(unsigned char *place, const member *member, size_t zeros) {
  const uint64_t numbers[] = {member->size, member->size};
  size_t name = strlen(member->name);
  int extra = long_size(2, numbers);
  unsigned char *next = place;
  memcpy(next, "PK\3\4", 4);
  next = put(put(next + 4, extra ? 45 : 20, 2), UTF8_NAME, 2);
  next = put(put(put(put(next, 0, 2), 0, 2), DATE_1980, 2), member->crc, 4);
  next = put(put(next, capped(member->size), 4), capped(member->size), 4);
  next = put(put(next, name, 2), (uint64_t)extra + zeros, 2);
  memcpy(next, member->name, name);
  return (size_t)(put_long(next + name, 2, numbers) - place);
}

static size_t central_header(unsigned char *place, const member *member, uint64_t offset) {
  const uint64_t numbers[] = {member->size, member->size, offset};
  size_t name = strlen(member->name);
  int extra = long_size(3, numbers), version = extra ? 45 : 20;
  unsigned char *next = place;
  memcpy(next, "PK\1\2", 4);
  next = put(put(put(next + 4, (uint64_t)(3 << 8 | version), 2), (uint64_t)version, 2), UTF8_NAME, 2);
  next = put(put(put(put(next, 0, 2), 0, 2), DATE_1980, 2), member->crc, 4);
  next = put(put(next, capped(member->size), 4), capped(member->size), 4);
  next = put(put(put(put(next, name, 2), (uint64_t)extra, 2), 0, 2), 0, 2);
  next = put(put(put(next, 0, 2), (uint64_t)MODE << 16, 4), capped(offset), 4);
  memcpy(next, member->name, name);
  return (size_t)(put_long(next + name, 3, numbers) - place);
}

static size_t end_records(unsigned char *place, uint64_t count, uint64_t length, uint64_t offset) {
  unsigned char *next = place;
  if (offset >= FULL) {
    memcpy(next, "PK\6\6", 4);
    next = put(put(put(put(put(next + 4, 44, 8), 45, 2), 45, 2), 0, 4), 0, 4);
    next = put(put(put(put(next, count, 8), count, 8), length, 8), offset, 8);
    memcpy(next, "PK\6\7", 4);
    next = put(put(put(next + 4, 0, 4), offset + length, 8), 1, 4);
  }
  memcpy(next, "PK\5\6", 4);
  next = put(put(put(put(next + 4, 0, 2), 0, 2), count, 2), count, 2);
  next = put(put(put(next, length, 4), capped(offset), 4), 0, 2);
  return (size_t)(next - place);
}

static bool damaged(const file *file, M_Status *status, const char *how, const char *name) {
  fail(status, WRONG_FILE, "error[EK0553]: '%s' is damaged: %s%s%s%s\nhint: " FETCH, file->path, how, name ? "'" : "",
       name ? name : "", name ? "'" : "");
  return false;
}

/* How many members there are, and the size and the place of the directory. */
static bool read_end(const file *file, uint64_t *count, uint64_t *length, uint64_t *offset, M_Status *status) {
  unsigned char end[98], wanted[98];
  if (file->size < 22 || !read_at(file, file->size - 22, end, 22) || memcmp(end, "PK\5\6", 4) != 0) {
    fail(status, WRONG_FILE, "error[EK0553]: '%s' is cut short, or something was added to its end\nhint: " FETCH,
         file->path);
    return false;
  }
  *count = get(end + 10, 2);
  *length = get(end + 12, 4);
  *offset = get(end + 16, 4);
  if (*offset == FULL && file->size > 98 && read_at(file, file->size - 98, end, 56)) *offset = get(end + 48, 8);
  if (*offset <= UINT64_C(1) << 48 && *length <= *count * (46 + MOST_NAME + 28)) {
    size_t size = end_records(wanted, *count, *length, *offset);
    if (*offset + *length + size == file->size && read_at(file, file->size - size, end, size) &&
        memcmp(end, wanted, size) == 0)
      return true;
  }
  return damaged(file, status, "its end record does not fit the file", NULL);
}

/* What is wrong with a name, as `name_trouble` says it; names of packages with graphs are ASCII. */
static const char *trouble_of(const char *name) {
  if (name[0] == 0) return "is empty";
  if (name[0] == '/' || name[1] == ':') return "is absolute";
  for (const char *c = name; *c != 0; c++)
    if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7F || strchr("\\:*?\"<>|", *c) != NULL) return "holds a character that file names may not hold";
  const char *wrong = NULL;
  for (const char *part = name;;) {
    size_t size = strcspn(part, "/");
    if (size == 2 && memcmp(part, "..", 2) == 0) return "climbs out of the package";
    if (size == 0 || part[0] == ' ' || part[size - 1] == ' ' || part[size - 1] == '.') wrong = "is not in its plain form";
    if (part[size] == 0) return wrong;
    part += size + 1;
  }
}

static bool wrong_name(const file *file, M_Status *status, const char *trouble, const char *name) {
  fail(status, WRONG_FILE, "error[EK0554]: '%s' holds a member whose name %s: '%s'", file->path, trouble, name);
  return false;
}

/* The member whose entry is at `*at`, and whose header is at `expected`; moves `*at` to the next one. */
static bool read_entry(const file *file, const unsigned char *directory, uint64_t length, uint64_t *at,
                       uint64_t expected, member *member, M_Status *status) {
  unsigned char wanted[46 + MOST_NAME + 28], there[46 + MOST_NAME + 28];
  const unsigned char *entry = directory + *at;
  if (length - *at < 46 || memcmp(entry, "PK\1\2", 4) != 0)
    return damaged(file, status, "its directory is not whole", NULL);
  uint64_t name = get(entry + 28, 2), extra = get(entry + 30, 2);
  member->crc = (uint32_t)get(entry + 16, 4);
  member->size = get(entry + 24, 4);
  if (name > length - *at - 46) name = length - *at - 46;
  if (name > MOST_NAME || (member->name = strndup((const char *)entry + 46, name)) == NULL)
    return damaged(file, status, "it has a name that is too long", NULL);
  if (strlen(member->name) != name) return wrong_name(file, status, "holds a character that file names may not hold", member->name);
  if (!is_utf8(member->name, name)) return wrong_name(file, status, "is not UTF-8 text", member->name);
  if (get(entry + 10, 2) != 0) {
    fail(status, WRONG_FILE, "error[EK0555]: '%s' holds a compressed member, '%s'; packages are stored", file->path,
         member->name);
    return false;
  }
  if (get(entry + 20, 4) != member->size) {
    fail(status, WRONG_FILE, "error[EK0555]: '%s' declares %llu bytes for '%s', which takes %llu in the file",
         file->path, (unsigned long long)member->size, member->name, (unsigned long long)get(entry + 20, 4));
    return false;
  }
  if (member->size == FULL && extra >= 12 && length - *at >= 46 + name + 12) member->size = get(entry + 46 + name + 4, 8);
  size_t size = central_header(wanted, member, expected);
  if (length - *at < size || memcmp(entry, wanted, size) != 0)
    return damaged(file, status, "it has an entry that is not written as packages are, of ", member->name);
  *at += size;
  const char *trouble = trouble_of(member->name);
  if (trouble != NULL) return wrong_name(file, status, trouble, member->name);
  /* the header: its data follows at once, or at the next page */
  uint64_t zeros = 0;
  size = local_header(wanted, member, 0);
  if (!read_at(file, expected, there, size) || memcmp(there, wanted, size) != 0) {
    zeros = (PAGE - (expected + size) % PAGE) % PAGE;
    local_header(wanted, member, zeros);
    char padding[PAGE], none[PAGE] = {0};
    if (!read_at(file, expected, there, size) || memcmp(there, wanted, size) != 0 ||
        !read_at(file, expected + size, padding, zeros) || memcmp(padding, none, zeros) != 0)
      return damaged(file, status, "there are two different headers of ", member->name);
  }
  member->start = expected + size + zeros;
  if (member->start > file->size || member->size > file->size - member->start)
    return damaged(file, status, "beyond its end reaches ", member->name);
  return true;
}

/* Names that differ in their case alone are one on some systems. */
static int compare_folded(const void *left, const void *right) {
  const char *a = *(const char *const *)left, *b = *(const char *const *)right;
  for (;; a++, b++) {
    int x = *a >= 'A' && *a <= 'Z' ? *a + 32 : (unsigned char)*a, y = *b >= 'A' && *b <= 'Z' ? *b + 32 : (unsigned char)*b;
    if (x != y || x == 0) return x - y;
  }
}

static bool check_names(const file *file, const archive *archive, M_Status *status) {
  const char **names = malloc((archive->count + 1) * sizeof *names), *twice = NULL;
  if (names == NULL) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return false;
  }
  for (size_t k = 0; k < archive->count; k++) names[k] = archive->members[k].name;
  qsort(names, archive->count, sizeof *names, compare_folded);
  for (size_t k = 1; k < archive->count; k++)
    if (compare_folded(&names[k - 1], &names[k]) == 0) twice = names[k];
  if (twice != NULL) wrong_name(file, status, "appears twice", twice);
  free(names);
  return twice == NULL;
}

/* Fills the archive, which is freed in both cases. */
bool read_archive(const file *file, archive *archive, M_Status *status) {
  uint64_t count, length, offset, at = 0, expected = 0;
  memset(archive, 0, sizeof *archive);
  if (!read_end(file, &count, &length, &offset, status)) return false;
  unsigned char *directory = malloc(length + 1);
  archive->members = calloc(count + 1, sizeof *archive->members);
  bool whole = directory != NULL && archive->members != NULL;
  if (!whole)
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
  else if (!read_at(file, offset, directory, length))
    whole = damaged(file, status, "its directory is not whole", NULL);
  while (whole && archive->count < count) {
    member *member = &archive->members[archive->count++];
    whole = read_entry(file, directory, length, &at, expected, member, status);
    expected = member->start + member->size;
  }
  free(directory);
  if (whole && (at != length || expected != offset)) whole = damaged(file, status, "its members do not fill it", NULL);
  return whole && check_names(file, archive, status);
}

void free_archive(archive *archive) {
  for (size_t k = 0; k < archive->count; k++) free(archive->members[k].name);
  free(archive->members);
}

const member *find_member(const archive *archive, const char *name) {
  for (size_t k = 0; k < archive->count; k++)
    if (strcmp(archive->members[k].name, name) == 0) return &archive->members[k];
  return NULL;
}

/* Compares a member with its CRC-32, computes its SHA-256, and copies it where `data` is given. */
bool read_member(const file *file, const member *member, void *data, unsigned char *sha256, M_Status *status) {
  digest digest;
  uint32_t crc = 0;
  size_t room = 1 << 16;
  char *chunk = malloc(room);
  digest_start(&digest, false);
  bool whole = chunk != NULL;
  for (uint64_t at = 0; whole && at < member->size; at += room) {
    size_t size = member->size - at < room ? (size_t)(member->size - at) : room;
    char *place = data == NULL ? chunk : (char *)data + at;
    if ((whole = read_at(file, member->start + at, place, size))) {
      crc = add_crc(crc, place, size);
      if (sha256 != NULL) digest_add(&digest, place, size);
    }
  }
  free(chunk);
  if (!whole || crc != member->crc) {
    fail(status, WRONG_FILE, "error[EK0553]: '%s' is damaged: the checksum of '%s' is wrong\nhint: " FETCH, file->path,
         member->name);
    return false;
  }
  if (sha256 != NULL) digest_end(&digest, sha256);
  return true;
}
