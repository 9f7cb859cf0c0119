#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const enum xop_status refused = XOP_FAILED_PRECONDITION;

/* Libraries of a kind are called after it by custom, NAME-cuda.so, and so need not be opened. */
static bool is_for_other(const char *name, const char *backend) {
    static const char *const backends[] = {"cpu", "cuda"};
    char suffix[16];
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        size_t n = (size_t)snprintf(suffix, sizeof suffix, "-%s.so", backends[i]);
        if (length > n && strcmp(name + length - n, suffix) == 0)
            return strcmp(backends[i], backend) != 0;
    }
    return false;
}

/* The file's own path, links followed: it has to lie in the directory. */
static enum xop_status resolve(const char *directory, const char *name, char *path,
                               struct xop_error *error) {
    char link[PATH_MAX], home[PATH_MAX];
    size_t n;
    if ((size_t)snprintf(link, sizeof link, "%s/%s", directory, name) >= sizeof link)
        return xop_fail(error, refused, "its path is too long");
    if (!realpath(directory, home) || !realpath(link, path))
        return xop_fail(error, refused, "%s", strerror(errno));
    n = strlen(home);
    if (n == 1) /* the root */
        n = 0;
    if (strncmp(path, home, n) != 0 || path[n] != '/')
        return xop_fail(error, refused, "it is a symbolic link out of the directory");
    return XOP_OK;
}

static bool read_at(int fd, void *to, size_t bytes, uint64_t offset) {
    return offset <= INT64_MAX && pread(fd, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Whether everything that the linker maps is in the file. */
static enum xop_status check_whole(int fd, uint64_t size, struct xop_error *error) {
    ElfW(Ehdr) head;
    if (!read_at(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return xop_fail(error, refused, "it is no shared object");
    if (head.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
        head.e_type != ET_DYN || head.e_phentsize != sizeof(ElfW(Phdr)))
        return xop_fail(error, refused, "it is no shared object of this machine");
    for (unsigned i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) segment;
        uint64_t end;
        if (!read_at(fd, &segment, sizeof segment, head.e_phoff + i * sizeof segment))
            return xop_fail(error, refused, "it is truncated");
        if (segment.p_type == PT_LOAD &&
            (__builtin_add_overflow((uint64_t)segment.p_offset, (uint64_t)segment.p_filesz, &end) ||
             end > size))
            return xop_fail(error, refused, "it is truncated: %llu bytes of %llu",
                            (unsigned long long)size, (unsigned long long)end);
    }
    return XOP_OK;
}

static enum xop_status check_file(const char *path, struct xop_error *error) {
    struct stat info;
    enum xop_status status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would not let go */
    if (fd < 0)
        return xop_fail(error, refused, "%s", strerror(errno));
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        status = xop_fail(error, refused, "it is no regular file");
    else if (info.st_mode & S_IWOTH)
        status = xop_fail(error, refused, "everybody may write it");
    else
        status = check_whole(fd, (uint64_t)info.st_size, error);
    close(fd);
    return status;
}

static enum xop_status check_references(const struct xop_library *library,
                                        const struct xop_references *references,
                                        struct xop_error *error) {
    if (!references || references->abi != XOP_REFERENCE_ABI)
        return xop_fail(error, refused, "its references are of version %u, this is %u",
                        references ? references->abi : 0, XOP_REFERENCE_ABI);
    if (references->list_size != sizeof(struct xop_reference) ||
        references->call_size != sizeof(struct xop_reference_call) ||
        references->tensor_size != sizeof(struct xop_reference_tensor))
        return xop_fail(error, refused,
                        "its references' structs have %u, %u and %u bytes, those here %zu, %zu and "
                        "%zu: it was built against another xop/op.h",
                        references->list_size, references->call_size, references->tensor_size,
                        sizeof(struct xop_reference), sizeof(struct xop_reference_call),
                        sizeof(struct xop_reference_tensor));
    for (uint32_t i = 0; i < references->n; i++) {
        const struct xop_reference *one = &references->list[i];
        uint32_t k = 0;
        while (k < library->nops && one->op && library->ops && library->ops[k] &&
               library->ops[k]->abi == XOP_OP_ABI && library->ops[k]->name &&
               strcmp(library->ops[k]->name, one->op) != 0)
            k++;
        if (!one->op || !one->pass[XOP_FORWARD] || k == library->nops)
            return xop_fail(error, refused, "it has a reference for %.63s, %s",
                            one->op ? one->op : "(unnamed)",
                            k < library->nops ? "without forward" : "which it has not");
    }
    return XOP_OK;
}

enum xop_status library_references(void *handle, const struct xop_library *library,
                                   const struct xop_references **references,
                                   struct xop_error *error) {
    const struct xop_references *(*function)(void);
    *references = NULL;
    /* ISO C knows no conversion between the two kinds of pointers; POSIX does. */
    *(void **)&function = dlsym(handle, "xop_library_references");
    if (!function)
        return XOP_OK;
    *references = function();
    return check_references(library, *references, error);
}

static enum xop_status look_up(void *handle, const char *backend,
                               const struct xop_library **library, struct xop_error *error) {
    const struct xop_references *references;
    *library = dlsym(handle, "xop_library");
    if (!*library)
        return xop_fail(error, refused, "it exports no xop_library (see XOP_LIBRARY in xop/op.h)");
    if ((*library)->abi != XOP_OP_ABI)
        return xop_fail(error, refused, "it was built against version %u of xop/op.h, this is %u",
                        (*library)->abi, XOP_OP_ABI);
    if (!(*library)->backend)
        return xop_fail(error, refused, "it does not say for which backend it is");
    if (strcmp((*library)->backend, backend) != 0)
        return xop_fail(error, XOP_UNIMPLEMENTED, "it is for the backend %.16s",
                        (*library)->backend);
    return library_references(handle, *library, &references, error);
}

enum xop_status library_open(const char *directory, const char *name, const char *backend,
                             void **handle, const struct xop_library **library,
                             struct xop_error *error) {
    char path[PATH_MAX];
    enum xop_status status;
    if (is_for_other(name, backend))
        return xop_fail(error, XOP_UNIMPLEMENTED, "its name says that it is for another backend");
    if (resolve(directory, name, path, error) != XOP_OK || check_file(path, error) != XOP_OK)
        return error->status;
    /* By its path, which debuggers and the linker know it by: who can exchange it meanwhile can
     * write the directory, and is trusted with what is in it. */
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle) {
        const char *why = dlerror();
        return xop_fail(error, refused, "%.400s", why ? why : "it cannot be opened");
    }
    status = look_up(*handle, backend, library, error);
    if (status != XOP_OK)
        dlclose(*handle);
    return status;
}
