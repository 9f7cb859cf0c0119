/* op check: a library in an xopd of its own, and all of verify on it. */
#include "op.h"
#include "verify.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define MAX_OPTIONS 64 /* and 4 that are added */

struct check {
    struct session *session;
    const char *file;
    const char *options[MAX_OPTIONS + 5]; /* for verify */
    int noptions;
    bool by_another, no_sanitizer;
    struct op_facts facts;
};

static bool parse(struct check *check, int argc, char **argv) {
    check->options[check->noptions++] = "verify";
    for (int i = 1; i < argc; i++) {
        if (!check->file && argv[i][0] != '-')
            check->file = argv[i];
        else if (strcmp(argv[i], "--no-sanitizer") == 0)
            check->no_sanitizer = true;
        else if (check->noptions == MAX_OPTIONS || (argv[i][0] != '-' && i == 1))
            return false;
        else
            check->options[check->noptions++] = argv[i];
        check->by_another |= strncmp(argv[i], "--reference", 11) == 0;
        check->session->json |= strcmp(argv[i], "--json") == 0;
    }
    return check->file && argv[1] == check->file;
}

/* In a process of its own, which opens the library to ask its infer and its references. */
static int judge(void *arg, const char *address) {
    struct check *check = arg;
    const struct xop_library *library;
    const struct xop_references *references;
    const char *names[OP_MAX_OPS];
    struct xop_error error;
    uint32_t n = 0;
    if (op_open(check->file, &library, &references, &error) != XOP_OK ||
        (!check->by_another && op_reference_use(library, references, &error) != XOP_OK))
        return session_fail(check->session, EX_DATAERR, error.status, "%s: %s", check->file,
                            error.message);
    for (; n < library->nops && n < OP_MAX_OPS; n++)
        names[n] = library->ops[n]->name;
    struct verify_source source = {names, n, op_reference_find};
    check->session->address = address;
    return verify_source(check->session, check->noptions, (char **)(uintptr_t)check->options,
                         &source);
}

/* ---- compute-sanitizer ---- */

/* What it found, in the logs of the processes that it watched; -1: it watched none. */
static int read_findings(const char *directory) {
    char path[PATH_MAX + 300], line[512];
    int found = -1;
    struct dirent *entry;
    DIR *list = opendir(directory);
    while (list && (entry = readdir(list))) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        FILE *log = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (log && fgets(line, sizeof line, log)) {
            const char *summary = strstr(line, "ERROR SUMMARY: ");
            if (summary)
                found = (found > 0 ? found : 0) + atoi(summary + 15);
            if (strncmp(line, "=========", 9) == 0 && line[9] != '\n' && !summary)
                fprintf(stderr, "%s", line);
        }
        if (log) {
            fclose(log);
            unlink(path);
        }
    }
    if (list)
        closedir(list);
    rmdir(directory);
    return found;
}

/* A few shapes are enough for it to see each kernel, and it is slow. */
static int sanitize(struct check *check, struct op_scratch_plan *plan) {
    static const char *const shapes[] = {"--shape", "1023", "--shape", "65,33"};
    char program[PATH_MAX], directory[] = "/tmp/xopctl-sanitizer-XXXXXX", log[128];
    if (!op_find_program("compute-sanitizer", program, sizeof program)) {
        snprintf(program, sizeof program, "/usr/local/cuda/bin/compute-sanitizer");
        if (access(program, X_OK) < 0) {
            fprintf(stderr, "compute-sanitizer is not installed, and not run\n");
            return 0;
        }
    }
    if (!mkdtemp(directory))
        return session_fail(check->session, EX_CANTCREAT, XOP_UNAVAILABLE,
                            "no temporary directory: %s", strerror(errno));
    snprintf(log, sizeof log, "%s/%%p.log", directory);
    const char *const prefix[] = {program, "--target-processes", "all", "--log-file", log, NULL};
    memcpy(&check->options[check->noptions], shapes, sizeof shapes);
    check->noptions += 4;
    check->options[check->noptions] = NULL;
    plan->prefix = prefix;
    fprintf(stderr, "the same under compute-sanitizer, for a few shapes:\n");
    int status = op_scratch_run(check->session, plan), found = read_findings(directory);
    if (found > 0)
        return session_fail(check->session, 1, XOP_INTERNAL, "compute-sanitizer found %d errors",
                            found);
    if (found < 0)
        fprintf(stderr, "compute-sanitizer could not watch the worker, and says nothing\n");
    else
        fprintf(stderr, "compute-sanitizer found no error\n");
    return status;
}

int op_check(struct session *session, int argc, char **argv) {
    static struct check check;
    struct xop_error error;
    check.session = session;
    if (!parse(&check, argc, argv))
        return session_usage(&verb_op, "check takes one library, and options behind it");
    if (op_probe(check.file, &check.facts, &error) != XOP_OK)
        return session_fail(session, error.status == XOP_NOT_FOUND ? EX_NOINPUT : EX_DATAERR,
                            error.status, "%s is refused: %s", check.file, error.message);
    for (uint32_t i = 0; i < check.facts.nops && !check.by_another; i++)
        if (!check.facts.ops[i].referenced)
            fprintf(stderr,
                    "%s brings no reference: values of forward are not judged, backward only by "
                    "central differences of it\n",
                    check.facts.ops[i].name);
    struct op_scratch_plan plan = {
        .library = check.file, .backend = check.facts.backend, .work = judge, .arg = &check};
    int status = op_scratch_run(session, &plan);
    if (status == 0 && strcmp(check.facts.backend, "cuda") == 0 && !check.no_sanitizer &&
        !session->json)
        status = sanitize(&check, &plan);
    return status;
}
