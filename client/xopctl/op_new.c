/* op new: a small operator that works. */
#include "op.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

/* name_begin to name_end are the file's bytes. */
#define HOLD(name, file)                                                                           \
    __asm__(".pushsection .rodata\n" #name "_begin:\n.incbin \"client/xopctl/templates/" file      \
            "\"\n" #name "_end:\n.popsection\n");                                                  \
    extern const char name##_begin[], name##_end[]

HOLD(op_template_c, "op.c");
HOLD(op_template_cu, "op.cu");

static const char placeholder[] = "template_op";

bool op_is_name(const char *name) {
    if (!islower((unsigned char)*name) || strlen(name) > XOP_MAX_NAME)
        return false;
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0;
}

char *op_template(bool cuda, const char *name) {
    const char *at = cuda ? op_template_cu_begin : op_template_c_begin;
    const char *end = cuda ? op_template_cu_end : op_template_c_end;
    char *text = NULL;
    size_t bytes, length = sizeof placeholder - 1;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    while (at < end) {
        const char *next = memmem(at, (size_t)(end - at), placeholder, length);
        fwrite(at, 1, (size_t)((next ? next : end) - at), to);
        if (next)
            fputs(name, to);
        at = next ? next + length : end;
    }
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

static int write_new(struct session *session, const char *file, const char *text) {
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return session_fail(session, EX_CANTCREAT,
                            errno == EEXIST ? XOP_ALREADY_EXISTS : XOP_UNAVAILABLE,
                            "%s: cannot be created: %s", file, strerror(errno));
    FILE *to = fdopen(fd, "w");
    if (!to) {
        close(fd);
        return session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    }
    bool failed = fputs(text, to) < 0;
    if (fclose(to) != 0 || failed) {
        unlink(file);
        return session_fail(session, EX_IOERR, XOP_UNAVAILABLE, "%s: cannot be written: %s", file,
                            strerror(errno));
    }
    return 0;
}

int op_new(struct session *session, int argc, char **argv) {
    static const struct option options[] = {
        {"c", no_argument, NULL, 'c'}, {"cuda", no_argument, NULL, 'u'}, {NULL, 0, NULL, 0}};
    char file[XOP_MAX_NAME + 8];
    bool cuda = false;
    int c;
    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == '?')
            return session_usage(&verb_op, "wrong usage");
        cuda = c == 'u';
    }
    if (optind + 1 != argc)
        return session_usage(&verb_op, "new takes one name");
    const char *name = argv[optind];
    if (!op_is_name(name))
        return session_usage(&verb_op,
                             "\"%.80s\" is no name for an operator: a small letter, then small "
                             "letters, digits and _, %d at most",
                             name, XOP_MAX_NAME);
    snprintf(file, sizeof file, "%s.%s", name, cuda ? "cu" : "c");
    char *text = op_template(cuda, name);
    int status = text ? write_new(session, file, text)
                      : session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    free(text);
    if (status == 0)
        printf("%s is written. Next:\n  xopctl op build %s\n  xopctl op check %s-%s.so\n", file,
               file, name, cuda ? "cuda" : "cpu");
    return status;
}
