/* Opening a library of operators, and finding out what it is without trusting it. */
#include "op.h"

#include "daemon/worker/declaration.h"
#include "daemon/worker/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD_LIMIT_S 30 /* a constructor may not hold xopctl for longer */

enum xop_status op_open(const char *path, const struct xop_library **library,
                        const struct xop_references **references, struct xop_error *error) {
    static const char *const backends[] = {"cpu", "cuda"};
    char whole[PATH_MAX], directory[PATH_MAX];
    void *handle = NULL;
    enum xop_status status = XOP_UNIMPLEMENTED;
    if (!realpath(path, whole))
        return xop_fail(error, XOP_NOT_FOUND, "%s", strerror(errno));
    snprintf(directory, sizeof directory, "%s", whole);
    const char *name = strrchr(whole, '/') + 1, *home = dirname(directory);
    for (size_t i = 0; i < 2 && status == XOP_UNIMPLEMENTED; i++)
        status = library_open(home, name, backends[i], &handle, library, error);
    if (status == XOP_OK) {
        xop_error_clear(error); /* what the other backend had to say */
        status = library_references(handle, *library, references, error);
    }
    if (status != XOP_OK)
        return status;
    if ((*library)->nops == 0 || !(*library)->ops)
        return xop_fail(error, XOP_FAILED_PRECONDITION, "it has no operators");
    for (uint32_t i = 0; i < (*library)->nops; i++)
        if (declaration_check((*library)->ops[i], error) != XOP_OK)
            return error->status;
    return XOP_OK;
}

static void find_facts(const char *path, struct op_facts *facts) {
    const struct xop_library *library = NULL;
    const struct xop_references *references = NULL;
    if (op_open(path, &library, &references, &facts->error) != XOP_OK || !library)
        return;
    snprintf(facts->backend, sizeof facts->backend, "%s", library->backend);
    for (uint32_t i = 0; i < library->nops && i < OP_MAX_OPS; i++) {
        facts->nops = i + 1;
        snprintf(facts->ops[i].name, sizeof facts->ops[i].name, "%s", library->ops[i]->name);
        for (uint32_t k = 0; references && k < references->n; k++)
            facts->ops[i].referenced |= strcmp(references->list[k].op, library->ops[i]->name) == 0;
    }
}

static bool write_all(int fd, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *to, size_t bytes) {
    char *at = to;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static enum xop_status end_by_library(int how, struct xop_error *error) {
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
        return xop_fail(error, XOP_DEADLINE_EXCEEDED, "it is not loaded after %d s", LOAD_LIMIT_S);
    if (WIFSIGNALED(how))
        return xop_fail(error, XOP_INTERNAL, "the process that loads it ends by it: %s%s",
                        strsignal(WTERMSIG(how)),
                        WTERMSIG(how) == SIGABRT ? " (as by an exception thrown while loading)"
                                                 : "");
    return xop_fail(error, XOP_INTERNAL, "the process that loads it ends by it, with status %d",
                    WEXITSTATUS(how));
}

enum xop_status op_probe(const char *path, struct op_facts *facts, struct xop_error *error) {
    int ends[2], how = 0;
    memset(facts, 0, sizeof *facts);
    fflush(NULL);
    if (pipe(ends) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no process: %s", strerror(errno));
    }
    if (child == 0) {
        close(ends[0]);
        alarm(LOAD_LIMIT_S);
        find_facts(path, facts);
        _exit(write_all(ends[1], facts, sizeof *facts) ? 0 : 1);
    }
    close(ends[1]);
    bool whole = read_all(ends[0], facts, sizeof *facts);
    close(ends[0]);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    if (!whole)
        return end_by_library(how, error);
    if (facts->error.status != XOP_OK)
        *error = facts->error;
    return facts->error.status;
}
