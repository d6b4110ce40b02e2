/* Loads exported files. Every part of a file is checked against its size before the system maps it. */
#include "internal.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SUFFIX "_model"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE
#endif

typedef struct image {
  const file *file;
  uint16_t segments;
  Elf64_Phdr *headers;
} image;

/* Reads what an address of the loaded file refers to. */
static bool read_address(const image *image, uint64_t address, void *data, uint64_t size) {
  for (uint16_t k = 0; k < image->segments; k++) {
    const Elf64_Phdr *each = &image->headers[k];
    if (each->p_type != PT_LOAD || address < each->p_vaddr || address - each->p_vaddr > each->p_filesz) continue;
    if (size > each->p_filesz - (address - each->p_vaddr)) return false;
    return read_at(image->file, each->p_offset + (address - each->p_vaddr), data, size);
  }
  return false;
}

/* The program headers, each within the file. */
static bool read_segments(image *image, M_Status *status) {
  Elf64_Ehdr head;
  const file *file = image->file;
  if (!read_at(file, 0, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) {
    fail(status, WRONG_FILE, "error[EK0552]: '%s' is not an exported model: expected a shared object, or a package",
         file->path);
    return false;
  }
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type != ET_DYN ||
      head.e_phentsize != sizeof(Elf64_Phdr)) {
    fail(status, WRONG_FILE, "error[EK0552]: '%s' is not a shared object of 64 bits", file->path);
    return false;
  }
  if (head.e_machine != MACHINE) {
    fail(status, EINKORN_WRONG_MACHINE, "'%s' is for another processor: ELF machine %d, expected %d", file->path,
         head.e_machine, MACHINE);
    return false;
  }
  image->segments = head.e_phnum;
  size_t bytes = head.e_phnum * sizeof(Elf64_Phdr);
  if ((image->headers = malloc(bytes + 1)) == NULL) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return false;
  }
  bool whole = read_at(file, head.e_phoff, image->headers, bytes);
  for (uint16_t k = 0; whole && k < image->segments; k++) {
    const Elf64_Phdr *each = &image->headers[k];
    uint64_t end;
    whole = each->p_type != PT_LOAD || (!__builtin_add_overflow(each->p_offset, each->p_filesz, &end) &&
                                        end <= file->size && each->p_filesz <= each->p_memsz);
  }
  if (!whole) fail(status, WRONG_FILE, "error[EK0552]: '%s' is cut off, or damaged", file->path);
  return whole;
}

typedef struct symbols {
  Elf64_Sym *rows;
  uint32_t count;
  char *texts; /* ends with a zero */
  uint64_t texts_size;
} symbols;

static bool read_symbols(const image *image, symbols *symbols) {
  const file *file = image->file;
  uint64_t table = 0, texts = 0, hash = 0;
  for (uint16_t k = 0; k < image->segments; k++) {
    const Elf64_Phdr *each = &image->headers[k];
    if (each->p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= each->p_filesz; at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn row;
      if (!read_at(file, each->p_offset + at, &row, sizeof row)) return false;
      if (row.d_tag == DT_NULL) break;
      if (row.d_tag == DT_SYMTAB) table = row.d_un.d_ptr;
      if (row.d_tag == DT_STRTAB) texts = row.d_un.d_ptr;
      if (row.d_tag == DT_STRSZ) symbols->texts_size = row.d_un.d_val;
      if (row.d_tag == DT_HASH) hash = row.d_un.d_ptr;
    }
  }
  uint32_t counts[2];
  if (!read_address(image, hash, counts, sizeof counts)) return false;
  if (counts[1] > file->size / sizeof(Elf64_Sym) || symbols->texts_size > file->size) return false;
  symbols->count = counts[1];
  symbols->rows = malloc(symbols->count * sizeof(Elf64_Sym) + 1);
  symbols->texts = malloc(symbols->texts_size + 1);
  if (symbols->rows == NULL || symbols->texts == NULL) return false;
  symbols->texts[symbols->texts_size] = 0;
  return read_address(image, table, symbols->rows, symbols->count * sizeof(Elf64_Sym)) &&
         read_address(image, texts, symbols->texts, symbols->texts_size);
}

/* The prefix of the model's functions: that of the only descriptor, or of the one with this name. */
static char *find_prefix(const symbols *symbols, const file *file, const char *name, M_Status *status) {
  const char *prefix = NULL;
  size_t length = 0, known = 0;
  for (uint32_t k = 0; k < symbols->count; k++) {
    const Elf64_Sym *each = &symbols->rows[k];
    if (each->st_shndx == SHN_UNDEF || each->st_name >= symbols->texts_size) continue;
    if (each->st_size < sizeof(einkorn_model) || ELF64_ST_TYPE(each->st_info) != STT_OBJECT) continue;
    const char *text = symbols->texts + each->st_name;
    size_t size = strlen(text);
    if (size <= strlen(SUFFIX) || strcmp(text + size - strlen(SUFFIX), SUFFIX) != 0) continue;
    size -= strlen(SUFFIX);
    if (name != NULL && (strlen(name) != size || memcmp(name, text, size) != 0)) continue;
    prefix = text;
    length = size;
    known++;
  }
  if (known == 1) {
    char *copy = strndup(prefix, length);
    if (copy == NULL) fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return copy;
  }
  if (name != NULL)
    fail(status, WRONG_FILE, "'%s' has no model '%s'", file->path, name);
  else if (known == 0)
    fail(status, WRONG_FILE, "error[EK0552]: '%s' is a shared object without an exported model", file->path);
  else
    fail(status, WRONG_FILE, "'%s' has %zu models: choose one with einkorn_set_model_name", file->path, known);
  return NULL;
}

static bool check_model(M_AsyncCompiledModel *compiled, M_Status *status) {
  const einkorn_model *model = compiled->model;
  if (model != NULL && model->size >= (int64_t)sizeof *model && model->abi == EINKORN_EXPORT_TYPES) return true;
  fail(status, WRONG_FILE, "the model has another ABI: %lld, expected %d", model == NULL ? -1 : (long long)model->abi,
       EINKORN_EXPORT_TYPES);
  compiled->model = NULL;
  return false;
}

static bool write_all(int handle, const unsigned char *data, uint64_t size) {
  while (size > 0) {
    ssize_t count = write(handle, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= (uint64_t)count;
  }
  return true;
}

/* Loads a shared object that is in memory: from a file without a name, or where the system has none, from a file that is
   removed at once. The handle stays open: the loader knows libraries by their paths, and the number of a handle that was
   closed would be the path of another library. */
static void *load_memory(M_AsyncCompiledModel *compiled, const file *file, char *path, size_t room) {
  int handle = (int)syscall(SYS_memfd_create, "einkorn", 1U /* closed in programs that are started */);
  snprintf(path, room, "/proc/self/fd/%d", handle);
  if (handle >= 0 && access(path, R_OK) == 0) {
    compiled->handle = handle;
    return write_all(handle, file->memory, file->size) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  }
  if (handle >= 0) close(handle);
  const char *folder = getenv("TMPDIR");
  snprintf(path, room, "%s/einkorn-XXXXXX", folder == NULL || folder[0] == 0 ? "/tmp" : folder);
  if ((handle = mkstemp(path)) < 0) return NULL;
  void *library = write_all(handle, file->memory, file->size) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  close(handle);
  unlink(path);
  return library;
}

static bool open_library(M_AsyncCompiledModel *compiled, const image *image, const char *name, M_Status *status) {
  symbols symbols = {0};
  char path[PATH_MAX];
  const file *file = image->file;
  bool read = read_symbols(image, &symbols);
  if (!read)
    fail(status, WRONG_FILE, "error[EK0552]: '%s' has no table of symbols that can be read", file->path);
  else
    compiled->prefix = find_prefix(&symbols, file, name, status);
  free(symbols.rows);
  free(symbols.texts);
  if (compiled->prefix == NULL) return false;
  if (file->memory != NULL) {
    compiled->library = load_memory(compiled, file, path, sizeof path);
  } else if (realpath(file->path, path) == NULL) {
    fail(status, NO_FILE, "error[EK0551]: '%s' cannot be read: %s", file->path, strerror(errno));
    return false;
  } else {
    compiled->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  if (compiled->library == NULL) {
    const char *why = dlerror();
    fail(status, WRONG_FILE, "error[EK0518]: '%s' cannot be loaded: %s", file->path, why == NULL ? strerror(errno) : why);
    return false;
  }
  compiled->model = model_function(compiled, SUFFIX);
  return check_model(compiled, status);
}

bool open_shared(M_AsyncCompiledModel *compiled, const file *file, const char *name, M_Status *status) {
  image image = {.file = file};
  bool opened = read_segments(&image, status) && open_library(compiled, &image, name, status);
  free(image.headers);
  return opened;
}

void *model_function(const M_AsyncCompiledModel *compiled, const char *suffix) {
  if (compiled->library == NULL) return NULL;
  size_t room = strlen(compiled->prefix) + strlen(suffix) + 1;
  char *name = malloc(room);
  if (name == NULL) return NULL;
  snprintf(name, room, "%s%s", compiled->prefix, suffix);
  void *function = dlsym(compiled->library, name);
  free(name);
  return function;
}

static bool open_file(M_AsyncCompiledModel *compiled, const M_CompileConfig *config, M_Status *status) {
  struct stat facts;
  const char *path = config->path == NULL ? "<memory>" : config->path;
  file file = {.handle = -1, .memory = config->memory, .size = config->size, .path = path};
  if (file.memory == NULL) {
    file.handle = open(path, O_RDONLY | O_CLOEXEC);
    if (file.handle < 0 || fstat(file.handle, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      const char *why = file.handle >= 0 ? "it is not a file" : strerror(errno);
      fail(status, NO_FILE, "error[EK0551]: '%s' cannot be read: %s", path, why);
      if (file.handle >= 0) close(file.handle);
      return false;
    }
    file.size = (uint64_t)facts.st_size;
  }
  char magic[4] = {0};
  read_at(&file, 0, magic, file.size < 4 ? file.size : 4);
  bool package = memcmp(magic, "PK\3\4", 4) == 0 || memcmp(magic, "PK\5\6", 4) == 0;
  bool opened = package ? open_package(compiled, &file, config->path != NULL, config->name, status)
                        : open_shared(compiled, &file, config->name, status);
  if (file.handle >= 0) close(file.handle);
  return opened;
}

/* The sizes and dtypes of the model's tensors, prepared for calls. */
static bool read_axes(M_AsyncCompiledModel *compiled) {
  const einkorn_model *model = compiled->model;
  size_t count = (size_t)(model->inputs + model->outputs);
  compiled->axes = calloc(count + 1, sizeof *compiled->axes);
  compiled->dtypes = calloc(count + 1, sizeof *compiled->dtypes);
  if (compiled->axes == NULL || compiled->dtypes == NULL) return false;
  for (size_t k = 0; k < count; k++) {
    const einkorn_tensor *tensor = &model->tensors[k];
    compiled->dtypes[k] = dtype_of(tensor->dtype);
    if ((compiled->axes[k] = calloc((size_t)tensor->rank + 1, sizeof(axis))) == NULL) return false;
    for (int32_t j = 0; j < tensor->rank; j++) {
      axis *each = &compiled->axes[k][j];
      each->kind = COMPUTED;
      for (int64_t dim = 0; dim < model->dims + model->late_dims; dim++)
        if (strcmp(tensor->dims[j], model->dim_names[dim]) == 0) *each = (axis){NAMED, dim};
      if (each->kind == COMPUTED && evaluate(tensor->dims[j], model, 0, NULL, &each->value)) each->kind = FIXED;
    }
  }
  return true;
}

void load_model(void *argument, M_Status *status) {
  M_AsyncCompiledModel *compiled = argument;
  const M_CompileConfig *config = compiled->config;
  compiled->model = config->model;
  if (compiled->model == NULL ? !open_file(compiled, config, status) : !check_model(compiled, status)) return;
  if (!read_axes(compiled)) {
    fail(status, EINKORN_NO_MEMORY, "there is no memory");
    return;
  }
  if (compiled->threads > 0) {
    void *symbol = model_function(compiled, "_set_threads");
    void (*set_threads)(int64_t);
    memcpy(&set_threads, &symbol, sizeof symbol);
    if (set_threads != NULL) set_threads((int64_t)compiled->threads);
  }
}

void unload_model(M_AsyncCompiledModel *compiled) {
  const einkorn_model *model = compiled->model;
  for (int64_t k = 0; model != NULL && compiled->axes != NULL && k < model->inputs + model->outputs; k++)
    free(compiled->axes[k]);
  free(compiled->axes);
  free(compiled->dtypes);
  free(compiled->prefix);
  if (compiled->library != NULL) dlclose(compiled->library); /* its destructors end the workers of the file */
  if (compiled->handle > 0) close(compiled->handle);
  if (compiled->mapped > 0)
    munmap(compiled->weights, compiled->mapped);
  else
    free(compiled->weights);
}
