/* What xop-cuda.so was built for, read from its ELF note (kernels/build_note.h): loading it would
 * need what may be missing. */
#include "doctor.h"

#include "kernels/build_note.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SEGMENTS 64
#define MOST_NOTES (64u * 1024) /* bytes of a segment of notes */

static bool read_at(int fd, void *to, size_t bytes, uint64_t offset) {
    return offset <= INT64_MAX && pread(fd, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

static size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

/* The content of our note among those of a segment, or NULL. */
static const char *find_note(const char *notes, size_t bytes) {
    const size_t head = sizeof(Elf64_Nhdr);
    while (bytes >= head) {
        Elf64_Nhdr note;
        memcpy(&note, notes, head);
        size_t owner = padded(note.n_namesz), content = padded(note.n_descsz);
        if (owner > bytes - head || content > bytes - head - owner)
            return NULL;
        const char *text = notes + head + owner;
        if (note.n_type == BUILD_NOTE_TYPE && note.n_namesz == sizeof BUILD_NOTE_OWNER &&
            memcmp(notes + head, BUILD_NOTE_OWNER, note.n_namesz) == 0 && content > 0 &&
            memchr(text, 0, note.n_descsz))
            return text;
        notes += head + owner + content;
        bytes -= head + owner + content;
    }
    return NULL;
}

/* Returns the note of a file, which is the caller's, or NULL and why. */
static char *read_note(int fd, char *why, size_t size) {
    Elf64_Ehdr header;
    char *found = NULL;
    if (!read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
        snprintf(why, size, "it is no shared object of this machine");
        return NULL;
    }
    for (unsigned i = 0; i < header.e_phnum && i < MOST_SEGMENTS && !found; i++) {
        Elf64_Phdr segment;
        if (!read_at(fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment) ||
            segment.p_type != PT_NOTE || segment.p_filesz > MOST_NOTES)
            continue;
        char *notes = malloc(segment.p_filesz + 1);
        if (notes && read_at(fd, notes, segment.p_filesz, segment.p_offset)) {
            const char *text = find_note(notes, segment.p_filesz);
            found = text ? strdup(text) : NULL;
        }
        free(notes);
    }
    if (!found)
        snprintf(why, size, "it does not say what it was built for: it is of another version");
    return found;
}

static void parse(char *text, struct doctor_build *build) {
    const struct {
        const char *key;
        char *to;
        size_t size;
    } keys[] = {
        {"machine", build->machine, sizeof build->machine},
        {"ptx", build->ptx, sizeof build->ptx},
        {"cublasLt", build->cublaslt, sizeof build->cublaslt},
    };
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = 0;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (strcmp(line, keys[i].key) == 0)
                snprintf(keys[i].to, keys[i].size, "%s", value);
        if (strcmp(line, "toolkit") == 0)
            build->toolkit = (int)strtol(value, NULL, 10);
    }
}

/* The same places as the backend's (kernels/cuda/lt.c). */
static void find_cublaslt(const struct doctor_host *host, struct doctor_build *build) {
    const char *named = getenv("XOP_CUBLASLT");
    int major = (int)strtol(build->cublaslt, NULL, 10);
    char names[3][120];
    snprintf(names[0], sizeof names[0], "libcublasLt.so.%d", major);
    snprintf(names[1], sizeof names[1], "/usr/local/cuda-%d/lib64/%.40s", major, names[0]);
    snprintf(names[2], sizeof names[2], "/usr/local/cuda/lib64/%.40s", names[0]);
    if (named) {
        build->has_cublaslt =
            host->open(named, build->cublaslt_why, sizeof build->cublaslt_why) != NULL;
        return;
    }
    for (int i = 0; i < 3 && !build->has_cublaslt; i++) {
        char why[300];
        build->has_cublaslt = host->open(names[i], why, sizeof why) != NULL;
        if (i == 0 && !build->has_cublaslt)
            snprintf(build->cublaslt_why, sizeof build->cublaslt_why, "%s", why);
    }
}

void doctor_probe_build(const struct doctor_host *host, struct doctor_build *build) {
    int fd = -1;
    memset(build, 0, sizeof *build);
    for (const char *const *directory = host->backends; *directory && fd < 0; directory++) {
        snprintf(build->path, sizeof build->path, "%s%s/xop-cuda.so", host->root, *directory);
        fd = open(build->path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT && errno != ENOTDIR) {
            build->found = true;
            snprintf(build->why, sizeof build->why, "it cannot be read: %s", strerror(errno));
            return;
        }
    }
    if (fd < 0)
        return;
    build->found = true;
    char *text = read_note(fd, build->why, sizeof build->why);
    close(fd);
    if (!text)
        return;
    parse(text, build);
    free(text);
    build->noted = build->toolkit > 0;
    if (!build->noted)
        snprintf(build->why, sizeof build->why, "its note names no CUDA toolkit");
    else if (*build->cublaslt)
        find_cublaslt(host, build);
}
