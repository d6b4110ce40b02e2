/* Loads models out of packages: what `einkorn pkg verify` checks is checked, and then the code for C programs is loaded
   from memory, and the weights are mapped. See also `dsl.package.container` and `dsl.package.manifest`. */
#include "internal.h"

#include <ctype.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MANIFEST "manifest.json"
#define SIGNATURES "signatures/"
#define REBUILD "\nhint: build it again with `einkorn build`"

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#else
#define ARCHITECTURE "aarch64"
#endif

enum { MAJOR = 1, MINOR = 4, ABI = 2, MOST_MANIFEST = 16 << 20, MOST_CODE = 1 << 30 };

/* What the manifest says of a member. */
typedef struct record {
  const char *member;
  char digest[65];
  int64_t size;
} record;

typedef struct package {
  const file *file;
  archive archive;
  char *text; /* the manifest */
  uint64_t text_size;
  json json;
  int64_t minor;
  bool strict;
  const char *name;
  size_t count, room;
  record *records; /* in the order of the file */
  signed_package signatures;
  M_Status *status;
} package;

static bool wrong(package *this, const char *where, const char *what) {
  fail(this->status, WRONG_FILE, "error[EK0556]: '%s' cannot be used: its manifest is not valid: %s %s" REBUILD,
       this->file->path, where, what);
  return false;
}

static bool refuse(package *this, const char *code, const char *what, const char *name) {
  fail(this->status, WRONG_FILE, "error[%s]: '%s' %s%s%s%s", code, this->file->path, what, name ? "'" : "",
       name ? name : "", name ? "'" : "");
  return false;
}

static bool no_memory(package *this) {
  fail(this->status, EINKORN_NO_MEMORY, "there is no memory");
  return false;
}

/* *** the manifest *** */

/* An object that has these fields, and of others only those that may be there. Names are separated by spaces. */
static bool check_fields(package *this, const json_value *object, const char *at, const char *required,
                         const char *optional) {
  if (object->kind != JSON_OBJECT) return wrong(this, at, "should be an object");
  for (const char *next = required; *next != 0;) {
    char name[20];
    size_t size = strcspn(next, " ");
    memcpy(name, next, size);
    name[size] = 0;
    if (json_field(&this->json, object, name) == NULL) return wrong(this, at, "lacks a field");
    next += size + (next[size] == ' ');
  }
  const json_value *name = object + 1;
  for (size_t k = 0; this->strict && k < object->count; k++, name = json_next(&this->json, name + 1)) {
    char padded[24], all[200];
    if (name->size > 18 || strlen(name->text) != name->size) return wrong(this, at, "holds an unknown field");
    snprintf(padded, sizeof padded, " %s ", name->text);
    snprintf(all, sizeof all, " %s %s ", required, optional);
    if (strstr(all, padded) == NULL || strchr(name->text, ' ') != NULL) return wrong(this, at, "holds an unknown field");
  }
  return true;
}

static const json_value *field(const package *this, const json_value *object, const char *name) {
  return json_field(&this->json, object, name);
}

/* A text; texts with a zero in them are no names of anything. */
static bool is_text(const json_value *value) { return value->kind == JSON_TEXT; }

static bool has_zero(const json_value *value) { return strlen(value->text) != value->size; }

static bool read_record(package *this, const json_value *value, const char *at) {
  if (!check_fields(this, value, at, "member sha256 size", "")) return false;
  const json_value *name = field(this, value, "member"), *digest = field(this, value, "sha256");
  const json_value *size = field(this, value, "size");
  if (!is_text(name) || has_zero(name)) return wrong(this, at, "has no name");
  if (strcmp(name->text, MANIFEST) == 0) return wrong(this, at, "speaks of a member whose name is that of the manifest itself");
  if (!is_text(digest) || digest->size != 64 || strspn(digest->text, "0123456789abcdef") != 64)
    return wrong(this, at, "has a sha256 that should be 64 hexadecimal digits");
  if (size->kind != JSON_INTEGER || size->integer < 0) return wrong(this, at, "has a size that should be an integer from 0");
  if (!grow((void **)&this->records, this->count, &this->room, sizeof *this->records)) return no_memory(this);
  record *record = &this->records[this->count++];
  record->member = name->text;
  record->size = size->integer;
  memcpy(record->digest, digest->text, 65);
  return true;
}

/* Calls a function for each item of a list, or for each value of an object. */
static bool each(package *this, const json_value *value, int kind, const char *at,
                 bool (*read)(package *, const json_value *, const char *)) {
  if (value->kind != kind) return wrong(this, at, kind == JSON_LIST ? "should be a list" : "should be an object");
  const json_value *item = value + 1;
  for (size_t k = 0; k < value->count; k++) {
    const json_value *own = kind == JSON_LIST ? item : item + 1;
    if (!read(this, own, at)) return false;
    item = json_next(&this->json, own);
  }
  return true;
}

static bool read_text_item(package *this, const json_value *value, const char *at) {
  return is_text(value) || wrong(this, at, "should be a string");
}

static bool read_tensor(package *this, const json_value *value, const char *at) {
  if (!check_fields(this, value, at, "name dtype shape", "")) return false;
  const json_value *dtype = field(this, value, "dtype");
  if (!is_text(field(this, value, "name")) || !is_text(dtype)) return wrong(this, at, "should be a string");
  if (this->strict && (has_zero(dtype) || !is_dtype(dtype->text))) return wrong(this, at, "should have a dtype");
  return each(this, field(this, value, "shape"), JSON_LIST, at, read_text_item);
}

static bool read_code(package *this, const json_value *value, const char *at) {
  return check_fields(this, value, at, "target requirements code", "") &&
         read_text_item(this, field(this, value, "target"), at) &&
         each(this, field(this, value, "requirements"), JSON_LIST, at, read_text_item) &&
         read_record(this, field(this, value, "code"), at);
}

/* The members of an object in the order of their names, as in the file. */
static bool read_doors(package *this, const json_value *value, const char *at) {
  const json_value *last = NULL;
  if (value->kind != JSON_OBJECT) return wrong(this, at, "should be an object");
  for (size_t turn = 0; turn < value->count; turn++) {
    const json_value *name = value + 1, *least = NULL;
    for (size_t k = 0; k < value->count; k++, name = json_next(&this->json, name + 1))
      if ((last == NULL || strcmp(name->text, last->text) > 0) && (least == NULL || strcmp(name->text, least->text) < 0))
        least = name;
    if (least == NULL || !read_record(this, least + 1, at)) return least == NULL && wrong(this, at, "has a wrong name");
    last = least;
  }
  return true;
}

static bool read_graph(package *this, const json_value *value, const char *at) {
  if (!check_fields(this, value, at, "name graph inputs outputs code", "weights arena doors") ||
      !read_text_item(this, field(this, value, "name"), at) || !read_record(this, field(this, value, "graph"), at) ||
      !each(this, field(this, value, "inputs"), JSON_LIST, "graphs.inputs", read_tensor) ||
      !each(this, field(this, value, "outputs"), JSON_LIST, "graphs.outputs", read_tensor) ||
      !each(this, field(this, value, "code"), JSON_LIST, "graphs.code", read_code))
    return false;
  const json_value *doors = field(this, value, "doors"), *weights = field(this, value, "weights");
  const json_value *arena = field(this, value, "arena");
  if (doors != NULL && !read_doors(this, doors, "graphs.doors")) return false;
  if (weights != NULL && !read_record(this, weights, "graphs.weights")) return false;
  return arena == NULL || (arena->kind == JSON_INTEGER && arena->integer >= 0) || wrong(this, at, "should have a number as arena");
}

/* Format and ABI, which never change their place. */
static bool check_numbers(package *this) {
  const json_value *root = this->json.values, *form = field(this, root, "format"), *abi = field(this, root, "abi");
  const json_value *major = form == NULL ? NULL : form + 1;
  if (root->kind != JSON_OBJECT) return wrong(this, "it", "is not a JSON object");
  if (form == NULL || form->kind != JSON_LIST || form->count != 2 || major->kind != JSON_INTEGER || major->integer < 0 ||
      major[1].kind != JSON_INTEGER || major[1].integer < 0)
    return wrong(this, "'format'", "must be [major, minor]");
  if (abi == NULL || abi->kind != JSON_INTEGER) return wrong(this, "'abi'", "must be an integer");
  bool newer = major->integer > MAJOR || (major->integer == MAJOR && abi->integer > ABI);
  const char *hint = newer ? "install a newer Einkorn, or build the package again" : "build the package again";
  if (major->integer != MAJOR)
    fail(this->status, WRONG_FILE,
         "error[EK0557]: '%s' has package format %lld.%lld, and this Einkorn reads format %d\nhint: %s", this->file->path,
         (long long)major->integer, (long long)major[1].integer, MAJOR, hint);
  else if (abi->integer != ABI && abi->integer != ABI - 1)
    fail(this->status, WRONG_FILE, "error[EK0558]: '%s' holds code with ABI %lld, and this Einkorn calls ABI %d\nhint: %s",
         this->file->path, (long long)abi->integer, ABI, hint);
  else {
    this->minor = major[1].integer;
    this->strict = this->minor <= MINOR;
    return true;
  }
  return false;
}

static bool read_manifest(package *this) {
  const char *problem = read_json(&this->json, this->text, this->text_size);
  if (problem != NULL) {
    fail(this->status, WRONG_FILE, "error[EK0556]: '%s' cannot be used: its manifest is not JSON: %s" REBUILD,
         this->file->path, problem);
    return false;
  }
  if (!check_numbers(this)) return false;
  const json_value *root = this->json.values;
  if (!check_fields(this, root, "the manifest", "format abi name version licence producers ops variants sources",
                    "tuning graphs"))
    return false;
  const json_value *ops = field(this, root, "ops"), *tuning = field(this, root, "tuning"), *name = field(this, root, "name");
  if (ops->kind != JSON_LIST) return wrong(this, "ops", "should be a list");
  if (ops->count > 0) {
    fail(this->status, NOT_SUPPORTED,
         "error[EK0560]: '%s' holds ops, and the C API runs graphs: model.export(\"model.pkg\") writes packages with them",
         this->file->path);
    return false;
  }
  if (field(this, root, "variants")->kind != JSON_LIST || field(this, root, "variants")->count > 0)
    return wrong(this, "variants", "should be an empty list, since there are no ops");
  for (const char *const *text = (const char *const[]){"name", "version", "licence", NULL}; *text != NULL; text++)
    if (!read_text_item(this, field(this, root, *text), *text)) return false;
  if (has_zero(name)) return wrong(this, "name", "holds a zero");
  this->name = name->text;
  const json_value *graphs = field(this, root, "graphs");
  return each(this, field(this, root, "producers"), JSON_OBJECT, "producers", read_text_item) &&
         each(this, field(this, root, "sources"), JSON_LIST, "sources", read_record) &&
         (tuning == NULL || read_record(this, tuning, "tuning")) &&
         (graphs == NULL || each(this, graphs, JSON_LIST, "graphs", read_graph));
}

/* Lists of the manifest are in order, and graphs differ in their names. */
static bool check_order(package *this, const char *list, const char *key) {
  const json_value *items = field(this, this->json.values, list), *item = items == NULL ? NULL : items + 1;
  const json_value *last = NULL;
  for (size_t k = 0; items != NULL && k < items->count; k++, item = json_next(&this->json, item)) {
    const json_value *name = field(this, item, key);
    size_t size = last == NULL ? 0 : last->size < name->size ? last->size : name->size;
    int order = last == NULL ? -1 : memcmp(last->text, name->text, size);
    if (order == 0) order = last->size < name->size ? -1 : last->size > name->size;
    if (order == 0) return wrong(this, list, "has one name twice");
    if (order > 0 && this->strict) return refuse(this, "EK0556", "holds its members in another order than packages do" REBUILD, NULL);
    last = name;
  }
  return true;
}

/* Members and manifest must speak of the same things: nothing missing, no size that lies, nothing unspoken of. */
static bool check_members(package *this) {
  const archive *archive = &this->archive;
  size_t first = archive->count;
  while (first > 0 && strncmp(archive->members[first - 1].name, SIGNATURES, strlen(SIGNATURES)) == 0) first--;
  for (size_t k = 0; k < this->count; k++) {
    const record *record = &this->records[k];
    bool follows = k + 1 < first && strcmp(archive->members[k + 1].name, record->member) == 0;
    const member *found = follows ? &archive->members[k + 1] : find_member(archive, record->member);
    if (found == NULL) return refuse(this, "EK0553", "is not whole: missing is ", record->member);
    if (found->size != (uint64_t)record->size) {
      fail(this->status, WRONG_FILE,
           "error[EK0559]: '%s' was tampered with: '%s' has %llu bytes, the manifest declares %lld\n"
           "hint: nothing of it was loaded; fetch it again from where you trust",
           this->file->path, record->member, (unsigned long long)found->size, (long long)record->size);
      return false;
    }
    if (this->strict && !follows) /* names of members differ, and so do those of records */
      return refuse(this, "EK0556", "holds its members in another order than packages do" REBUILD, NULL);
    if (strncmp(record->member, SIGNATURES, strlen(SIGNATURES)) == 0)
      return refuse(this, "EK0556", "has a record of a signature: ", record->member);
  }
  if (this->strict && first != this->count + 1)
    return refuse(this, "EK0556", "holds a member that its manifest does not list, or lists a signature", NULL);
  for (size_t k = 0; k < first; k++)
    if (strncmp(archive->members[k].name, SIGNATURES, strlen(SIGNATURES)) == 0)
      return refuse(this, "EK0556", "holds its signatures in another order or place than packages do" REBUILD, NULL);
  if (!check_order(this, "graphs", "name") || !check_order(this, "sources", "member")) return false;
  signed_package *all = &this->signatures;
  if ((all->signatures = calloc(archive->count - first + 1, sizeof *all->signatures)) == NULL) return no_memory(this);
  for (size_t k = first; k < archive->count; k++) {
    const member *member = &archive->members[k];
    const char *mark = member->name + strlen(SIGNATURES);
    if (strlen(mark) != 64 || strspn(mark, "0123456789abcdef") != 64 || member->size != 64)
      return refuse(this, "EK0556", "holds what is not a signature, 64 bytes, named after their key: ", member->name);
    if (k > first && strcmp(member[-1].name, member->name) > 0)
      return refuse(this, "EK0556", "holds its signatures in another order or place than packages do" REBUILD, NULL);
    signature *each = &all->signatures[all->count++];
    memcpy(each->fingerprint, mark, 65);
    if (!read_member(this->file, member, each->bytes, NULL, this->status)) return false;
  }
  return true;
}

static bool open_manifest(package *this) {
  const archive *archive = &this->archive;
  if (!read_archive(this->file, &this->archive, this->status)) return false;
  const member *manifest = archive->count == 0 ? NULL : &archive->members[0];
  if (manifest == NULL || strcmp(manifest->name, MANIFEST) != 0)
    return refuse(this, "EK0552", "is not a package: its first member is not ", MANIFEST);
  if (manifest->size > MOST_MANIFEST) return refuse(this, "EK0555", "declares too many bytes for ", MANIFEST);
  this->text_size = manifest->size;
  if ((this->text = malloc(manifest->size + 1)) == NULL) return no_memory(this);
  return read_member(this->file, manifest, this->text, NULL, this->status) && read_manifest(this) && check_members(this);
}

/* *** the graph *** */

static bool matches_record(package *this, const record *record, void *data) {
  unsigned char hash[32];
  char text[65];
  if (!read_member(this->file, find_member(&this->archive, record->member), data, hash, this->status)) return false;
  write_hex(hash, 32, text);
  if (strcmp(text, record->digest) == 0) return true;
  fail(this->status, WRONG_FILE,
       "error[EK0559]: '%s' was tampered with: '%s' does not match the manifest\nthe manifest declares SHA-256 %s\n"
       "the member has SHA-256 %s\nhint: nothing of it was loaded; fetch it again from where you trust",
       this->file->path, record->member, record->digest, text);
  return false;
}

static const json_value *find_graph(package *this, const char *name) {
  const json_value *graphs = field(this, this->json.values, "graphs"), *found = NULL;
  size_t count = graphs == NULL ? 0 : graphs->count, known = 0;
  const json_value *item = graphs == NULL ? NULL : graphs + 1;
  for (size_t k = 0; k < count; k++, item = json_next(&this->json, item))
    if (name == NULL || has_text(field(this, item, "name"), name)) {
      found = item;
      known++;
    }
  if (known == 1) return found;
  const char *what = count == 0      ? "has no graphs: model.export(\"model.pkg\") writes packages with graphs"
                     : name == NULL ? "has several graphs: choose one with einkorn_set_model_name"
                                    : "has no graph ";
  refuse(this, "EK0560", what, count == 0 ? NULL : name);
  return NULL;
}

static const record *record_of(const package *this, const json_value *value) {
  const char *name = field(this, value, "member")->text;
  size_t k = 0;
  while (strcmp(this->records[k].member, name) != 0) k++; /* each was read before */
  return &this->records[k];
}

/* The code for C programs on this processor. */
static const record *find_door(package *this, const json_value *graph) {
  const json_value *doors = field(this, graph, "doors");
  const json_value *door = doors == NULL ? NULL : field(this, doors, ARCHITECTURE);
  if (door != NULL) return record_of(this, door);
  if (doors == NULL || doors->count == 0)
    fail(this->status, NOT_SUPPORTED,
         "'%s' has no code for C programs\nhint: write it again with this version: model.export(\"model.pkg\")",
         this->file->path);
  else
    fail(this->status, EINKORN_WRONG_MACHINE,
         "'%s' is for another processor: it has code for C programs on %s, expected " ARCHITECTURE
         "\nhint: name a target of it: model.export(\"model.pkg\", targets=[...])",
         this->file->path, doors[1].text);
  return NULL;
}

/* The bytes of the weights: mapped from the file, or copied, where they are in memory at a place that does not fit. */
static const unsigned char *map_weights(package *this, M_AsyncCompiledModel *compiled, const member *member) {
  const file *file = this->file;
  if (file->memory == NULL) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), rest = member->start % page;
    size_t size = (size_t)(member->size + rest);
    void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file->handle, (off_t)(member->start - rest));
    if (mapped == MAP_FAILED) {
      refuse(this, "EK0551", "cannot be mapped", NULL);
      return NULL;
    }
    compiled->weights = mapped;
    compiled->mapped = size;
    return (const unsigned char *)mapped + rest;
  }
  const unsigned char *place = file->memory + member->start;
  if ((uintptr_t)place % 64 == 0) return place;
  if ((compiled->weights = aligned_alloc(64, (member->size + 64) / 64 * 64)) == NULL) {
    no_memory(this);
    return NULL;
  }
  memcpy(compiled->weights, place, member->size);
  return compiled->weights;
}

static bool wrong_weights(package *this, const char *member, const char *what) {
  fail(this->status, EINKORN_WRONG_WEIGHTS, "error[EK0433]: the weights '%s' of '%s' cannot be used: %s", member,
       this->file->path, what);
  return false;
}

/* Gives the model its weights: a file in the safetensors format, whose names are numbers of nodes. */
static bool give_weights(package *this, M_AsyncCompiledModel *compiled, const member *member) {
  const unsigned char *base = map_weights(this, compiled, member);
  if (base == NULL) return false;
  void *symbol = model_function(compiled, "_set_weight");
  int32_t (*set_weight)(const char *, const void *, einkorn_failure *);
  memcpy(&set_weight, &symbol, sizeof symbol);
  if (set_weight == NULL) return true; /* of a graph whose weights are all numbers in its code */
  uint64_t head = 0;
  for (int k = 7; k >= 0 && member->size >= 8; k--) head = head << 8 | base[k];
  if (member->size < 8 || head > member->size - 8 || head > MOST_MANIFEST)
    return wrong_weights(this, member->name, "their header does not fit");
  json json;
  const char *problem = read_json(&json, (const char *)base + 8, (size_t)head);
  bool fine = problem == NULL || wrong_weights(this, member->name, problem);
  const json_value *root = json.values, *name = root == NULL ? NULL : root + 1;
  if (fine && root->kind != JSON_OBJECT) fine = wrong_weights(this, member->name, "their header is not an object");
  for (size_t k = 0; fine && k < root->count; k++, name = json_next(&json, name + 1)) {
    const json_value *place = json_field(&json, name + 1, "data_offsets");
    if (place == NULL || place->kind != JSON_LIST || place->count != 2 || place[1].kind != JSON_INTEGER ||
        place[2].kind != JSON_INTEGER || place[1].integer < 0 || place[2].integer < place[1].integer ||
        (uint64_t)place[2].integer > member->size - 8 - head) {
      fine = wrong_weights(this, member->name, "one reaches beyond their end");
      break;
    }
    einkorn_failure why;
    /* Arrays without elements are in the file, and the model does not ask for them. */
    if (place[1].integer == place[2].integer || set_weight(name->text, base + 8 + head + place[1].integer, &why) == 0)
      continue;
    fail_model(this->status, compiled->model, &why);
    fine = false;
  }
  free_json(&json);
  return fine;
}

static bool load_graph(package *this, M_AsyncCompiledModel *compiled, const char *name) {
  const json_value *graph = find_graph(this, name);
  const record *door = graph == NULL ? NULL : find_door(this, graph);
  if (door == NULL) return false;
  if (door->size > MOST_CODE) return refuse(this, "EK0555", "declares too many bytes for ", door->member);
  unsigned char *code = malloc((size_t)door->size + 1);
  if (code == NULL) return no_memory(this);
  bool fine = true;
  for (size_t k = 0; fine && k < this->count; k++)
    fine = matches_record(this, &this->records[k], &this->records[k] == door ? code : NULL);
  file file = {.handle = -1, .memory = code, .size = (uint64_t)door->size, .path = this->file->path};
  fine = fine && open_shared(compiled, &file, NULL, this->status);
  free(code);
  const json_value *weights = field(this, graph, "weights");
  return fine && (weights == NULL ||
                  give_weights(this, compiled, find_member(&this->archive, record_of(this, weights)->member)));
}

bool open_package(M_AsyncCompiledModel *compiled, const file *file, bool is_file, const char *name, M_Status *status) {
  package package = {.file = file, .status = status};
  bool opened = open_manifest(&package);
  if (opened) {
    signed_package *all = &package.signatures;
    all->path = file->path;
    all->name = package.name;
    all->is_file = is_file;
    all->manifest = package.text;
    all->manifest_size = package.text_size;
    opened = enforce(all, &compiled->settings, status) && load_graph(&package, compiled, name);
  }
  free(package.signatures.signatures);
  free(package.records);
  free_json(&package.json);
  free(package.text);
  free_archive(&package.archive);
  return opened;
}
