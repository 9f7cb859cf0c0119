/* op build: a compiler with the right flags, and its errors with file and line. */
#include "op.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define MAX_ARGUMENTS 128

struct build {
    const char *source, *output, *arch;
    bool cuda;
    char name[PATH_MAX], beside[PATH_MAX + 8]; /* the library, and it while it is written */
    char headers[PATH_MAX], arch_text[32][96];
    char *argv[MAX_ARGUMENTS];
    int argc;
};

static bool directory_of_program(char *path, size_t capacity) {
    ssize_t n = readlink("/proc/self/exe", path, capacity - 1);
    path[n > 0 ? n : 0] = 0;
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

bool op_find_headers(char *path, size_t capacity) {
    static const char *const places[] = {"/include", "/../include"};
    char home[PATH_MAX], file[PATH_MAX + 64];
    if (!directory_of_program(home, sizeof home))
        return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(file, sizeof file, "%s%s/xop/op.h", home, places[i]);
        if (access(file, R_OK) == 0)
            return (size_t)snprintf(path, capacity, "%s%s", home, places[i]) < capacity;
    }
    return false;
}

bool op_find_program(const char *name, char *path, size_t capacity) {
    char home[PATH_MAX];
    if (directory_of_program(home, sizeof home) &&
        (size_t)snprintf(path, capacity, "%s/%s", home, name) < capacity && access(path, X_OK) == 0)
        return true;
    for (const char *at = getenv("PATH"); at && *at;) {
        size_t n = strcspn(at, ":");
        if (n > 0 && (size_t)snprintf(path, capacity, "%.*s/%s", (int)n, at, name) < capacity &&
            access(path, X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* ---- The command ---- */

static void add(struct build *b, const char *argument) {
    if (b->argc < MAX_ARGUMENTS - 1)
        b->argv[b->argc++] = (char *)(uintptr_t)argument;
}

static void add_all(struct build *b, const char *const *arguments, size_t n) {
    for (size_t i = 0; i < n; i++)
        add(b, arguments[i]);
}

/* Results must not depend on how a compiler contracts a*b+c, and errno is nobody's concern. */
static void add_c(struct build *b) {
    static const char *const flags[] = {"-std=gnu17",
                                        "-O3",
                                        "-g",
                                        "-Wall",
                                        "-Wextra",
                                        "-fPIC",
                                        "-shared",
                                        "-fvisibility=hidden",
                                        "-ffp-contract=off",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-Wl,--no-undefined"};
    const char *compiler = getenv("CC");
    add(b, compiler && *compiler ? compiler : "cc");
    add_all(b, flags, sizeof flags / sizeof *flags);
}

/* The GPU's own code where there is one; else code that every GPU's driver compiles when it loads.
 */
static enum xop_status add_arch(struct build *b, struct xop_error *error) {
    uint32_t n = 0;
    if (!b->arch) {
        bool here = access("/dev/nvidiactl", F_OK) == 0;
        add(b, here ? "-arch=native" : "-gencode=arch=compute_75,code=compute_75");
        return XOP_OK;
    }
    for (const char *at = b->arch; *at;) {
        char *end;
        unsigned long arch = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || arch < 50 || arch > 999 || n == 32)
            return xop_fail(error, XOP_INVALID_ARGUMENT, "--arch takes numbers, as 80,90");
        snprintf(b->arch_text[n], sizeof b->arch_text[n],
                 "-gencode=arch=compute_%lu,code=[sm_%lu,compute_%lu]", arch, arch, arch);
        add(b, b->arch_text[n++]);
        at = *end ? end + 1 : end;
    }
    return XOP_OK;
}

static enum xop_status add_nvcc(struct build *b, struct xop_error *error) {
    static const char *const flags[] = {
        "-std=c++17",  "-O3",
        "-shared",     "-cudart",
        "static",      "-lineinfo",
        "-fmad=false", "--expt-relaxed-constexpr",
        "-Xcompiler",  "-fPIC,-fvisibility=hidden,-Wall,-ffp-contract=off"};
    static char nvcc[PATH_MAX];
    const char *named = getenv("NVCC");
    if (named && *named)
        snprintf(nvcc, sizeof nvcc, "%s", named);
    else if (!op_find_program("nvcc", nvcc, sizeof nvcc))
        snprintf(nvcc, sizeof nvcc, "/usr/local/cuda/bin/nvcc");
    add(b, nvcc);
    add_all(b, flags, sizeof flags / sizeof *flags);
    return add_arch(b, error);
}

static enum xop_status name_output(struct build *b, struct xop_error *error) {
    const char *slash = strrchr(b->source, '/'), *base = slash ? slash + 1 : b->source;
    const char *dot = strrchr(base, '.');
    b->cuda = dot && strcmp(dot, ".cu") == 0;
    if (!dot || (!b->cuda && strcmp(dot, ".c") != 0))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is neither a .c nor a .cu file",
                        b->source);
    int n = b->output ? snprintf(b->name, sizeof b->name, "%s", b->output)
                      : snprintf(b->name, sizeof b->name, "%.*s-%s.so", (int)(dot - b->source),
                                 b->source, b->cuda ? "cuda" : "cpu");
    if (n < 0 || (size_t)n >= sizeof b->name)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the library's name is too long");
    snprintf(b->beside, sizeof b->beside, "%s.new", b->name);
    return XOP_OK;
}

/* ---- Running it ---- */

/* nvcc writes FILE(LINE): where everybody else writes FILE:LINE:, which editors know. */
static void print_line(const char *line, FILE *to) {
    const char *open = strchr(line, '('), *close = open ? strstr(open, "): ") : NULL;
    bool digits =
        close && close > open + 1 && strspn(open + 1, "0123456789") == (size_t)(close - open - 1);
    if (digits)
        fprintf(to, "%.*s:%.*s: %s", (int)(open - line), line, (int)(close - open - 1), open + 1,
                close + 3);
    else
        fputs(line, to);
}

/* A pipe from the compiler's standard output and error. */
static pid_t start_compiler(struct build *b, int *from) {
    int ends[2];
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0)
            _exit(126);
        execvp(b->argv[0], b->argv);
        fprintf(stderr, "%s cannot be run: %s\n", b->argv[0], strerror(errno));
        fflush(stderr);
        _exit(127);
    }
    close(ends[1]);
    if (child < 0)
        close(ends[0]);
    else
        *from = ends[0];
    return child;
}

static int compile(struct session *session, struct build *b) {
    char *line = NULL;
    size_t capacity = 0;
    int from = -1, how = 0;
    uint32_t errors = 0;
    pid_t child = start_compiler(b, &from);
    FILE *said = child < 0 ? NULL : fdopen(from, "r");
    if (!said)
        return session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "no process: %s",
                            strerror(errno));
    while (getline(&line, &capacity, said) >= 0) {
        errors += strstr(line, "error: ") != NULL || strstr(line, "error #") != NULL;
        print_line(line, stderr);
    }
    free(line);
    fclose(said);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return 0;
    unlink(b->beside);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 127)
        return session_fail(session, EX_UNAVAILABLE, XOP_UNAVAILABLE,
                            "there is no compiler %s: install it, or name another by %s",
                            b->argv[0], b->cuda ? "NVCC" : "CC");
    if (errors > 0)
        return session_fail(session, EX_DATAERR, XOP_INVALID_ARGUMENT, "%s: %u error%s", b->source,
                            errors, errors == 1 ? "" : "s");
    return session_fail(session, EX_DATAERR, XOP_INVALID_ARGUMENT, "%s: %s did not compile it",
                        b->source, b->argv[0]);
}

/* What was compiled is loaded before it takes its name. */
static int finish(struct session *session, struct build *b) {
    struct op_facts facts;
    struct xop_error error;
    if (op_probe(b->beside, &facts, &error) != XOP_OK) {
        unlink(b->beside);
        return session_fail(session, EX_DATAERR, error.status,
                            "%s is compiled, but cannot be used: %s", b->source, error.message);
    }
    if (rename(b->beside, b->name) < 0) {
        unlink(b->beside);
        return session_fail(session, EX_CANTCREAT, XOP_UNAVAILABLE, "%s: %s", b->name,
                            strerror(errno));
    }
    printf("%s (%s):", b->name, facts.backend);
    for (uint32_t i = 0; i < facts.nops; i++)
        printf("%s %s%s", i ? "," : "", facts.ops[i].name,
               facts.ops[i].referenced ? "" : " (without a reference)");
    printf("\n");
    return 0;
}

static int parse(struct build *b, int argc, char **argv) {
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"arch", required_argument, NULL, 'a'},
                                            {NULL, 0, NULL, 0}};
    int c;
    optind = 0;
    while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (c == 'o')
            b->output = optarg;
        else if (c == 'a')
            b->arch = optarg;
        else
            return session_usage(&verb_op, "wrong usage");
    }
    if (optind == argc)
        return session_usage(&verb_op, "build takes a .c or .cu file");
    b->source = argv[optind++];
    if (optind < argc && strcmp(argv[optind], "--") != 0)
        return session_usage(&verb_op,
                             "unexpected: %s (options come before the file, what is for "
                             "the compiler behind --)",
                             argv[optind]);
    return 0;
}

int op_build(struct session *session, int argc, char **argv) {
    static struct build b;
    struct xop_error error;
    int status = parse(&b, argc, argv);
    if (status)
        return status;
    if (name_output(&b, &error) != XOP_OK)
        return session_usage(&verb_op, "%s", error.message);
    if (access(b.source, R_OK) < 0)
        return session_fail(session, EX_NOINPUT, XOP_NOT_FOUND, "%s: %s", b.source,
                            strerror(errno));
    if (!op_find_headers(b.headers, sizeof b.headers))
        return session_fail(session, EX_UNAVAILABLE, XOP_NOT_FOUND,
                            "xop/op.h is not installed beside xopctl");
    if (!b.cuda)
        add_c(&b);
    else if (add_nvcc(&b, &error) != XOP_OK)
        return session_usage(&verb_op, "%s", error.message);
    const char *rest[] = {"-I", b.headers, b.source, "-o", b.beside};
    add_all(&b, rest, sizeof rest / sizeof *rest);
    for (int i = optind + 1; i < argc; i++)
        add(&b, argv[i]);
    add(&b, "-lm");
    status = compile(session, &b);
    return status ? status : finish(session, &b);
}
