/* An xopd for one library: started, watched and ended here. */
#include "op.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define READY_LIMIT_MS 120000 /* a context on a busy GPU, under a sanitizer */
#define MAX_PREFIX 16
#define LOG_BYTES 65536 /* of the daemon's log, its end, that are shown where it fails */

struct op_scratch {
    char directory[PATH_MAX], address[PATH_MAX + 16];
    pid_t daemon, worker; /* who runs xopd, and who does the work */
    int log;              /* what xopd says */
    char text[LOG_BYTES];
    size_t length;
};

/* What a signal that asks xopctl to end has to end first. */
static volatile sig_atomic_t working;

static void on_signal(int signal_number) {
    (void)signal_number;
    if (working > 0)
        kill((pid_t)working, SIGTERM);
}

/* ---- The directory ---- */

static bool write_file(const char *path, const char *text) {
    FILE *to = fopen(path, "wxe");
    bool ok = to && fputs(text, to) >= 0;
    return to && fclose(to) == 0 && ok;
}

static bool copy_library(const char *from, const char *to) {
    char buffer[65536];
    size_t n;
    FILE *in = fopen(from, "re"), *out = in ? fopen(to, "wxe") : NULL;
    bool ok = out != NULL;
    while (ok && (n = fread(buffer, 1, sizeof buffer, in)) > 0)
        ok = fwrite(buffer, 1, n, out) == n;
    ok = ok && !ferror(in);
    if (in)
        fclose(in);
    return out && fclose(out) == 0 && ok && chmod(to, 0600) == 0;
}

static enum xop_status prepare(struct op_scratch *s, const struct op_scratch_plan *plan,
                               struct xop_error *error) {
    char path[PATH_MAX + 64], text[256];
    const char *temporary = getenv("TMPDIR");
    snprintf(s->directory, sizeof s->directory - 64, "%s/xopctl-op-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(s->directory)) {
        *s->directory = 0;
        return xop_fail(error, XOP_UNAVAILABLE, "no temporary directory: %s", strerror(errno));
    }
    snprintf(s->address, sizeof s->address, "unix:%s/xopd.sock", s->directory);
    /* A path of its own, so that the machine's configuration has no say. */
    snprintf(text, sizeof text, "[device]\nbackend = %s\n", plan->backend);
    snprintf(path, sizeof path, "%s/xopd.conf", s->directory);
    bool ok = write_file(path, text);
    snprintf(path, sizeof path, "%s/operators", s->directory);
    ok = ok && mkdir(path, 0700) == 0;
    snprintf(path, sizeof path, "%s/operators/checked.so", s->directory);
    ok = ok && copy_library(plan->library, path);
    return ok ? XOP_OK
              : xop_fail(error, XOP_UNAVAILABLE, "%s: cannot be written: %s", s->directory,
                         strerror(errno));
}

static void remove_in(const char *directory) {
    char path[PATH_MAX + 300];
    struct dirent *entry;
    DIR *list = opendir(directory);
    while (list && (entry = readdir(list))) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(path);
    }
    if (list)
        closedir(list);
}

static void remove_directory(const struct op_scratch *s) {
    char operators[PATH_MAX + 16];
    if (!*s->directory)
        return;
    snprintf(operators, sizeof operators, "%s/operators", s->directory);
    remove_in(operators);
    rmdir(operators);
    remove_in(s->directory);
    rmdir(s->directory);
}

/* ---- The daemon ---- */

static void become_daemon(const struct op_scratch *s, const struct op_scratch_plan *plan,
                          const char *xopd, pid_t parent) {
    char configuration[PATH_MAX + 64], operators[PATH_MAX + 64];
    const char *argv[MAX_PREFIX + 10];
    int n = 0;
    for (; plan->prefix && plan->prefix[n] && n < MAX_PREFIX; n++)
        argv[n] = plan->prefix[n];
    snprintf(configuration, sizeof configuration, "%s/xopd.conf", s->directory);
    snprintf(operators, sizeof operators, "%s/operators", s->directory);
    const char *rest[] = {xopd,       "-c",          configuration, "--listen",
                          s->address, "--operators", operators,     NULL};
    memcpy(&argv[n], rest, sizeof rest);
    /* It ends with xopctl, however that ends. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(70);
    signal(SIGINT, SIG_IGN); /* the terminal's is for xopctl, which ends the daemon */
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "%s cannot be run: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static enum xop_status start_daemon(struct op_scratch *s, const struct op_scratch_plan *plan,
                                    struct xop_error *error) {
    char xopd[PATH_MAX];
    int ends[2];
    pid_t parent = getpid();
    if (!op_find_program("xopd", xopd, sizeof xopd))
        return xop_fail(error, XOP_UNAVAILABLE, "there is no xopd beside xopctl, nor in PATH");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no pipe: %s", strerror(errno));
    fflush(NULL);
    s->daemon = fork();
    if (s->daemon == 0) {
        int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(ends[1], STDOUT_FILENO) < 0 ||
            dup2(ends[1], STDERR_FILENO) < 0)
            _exit(71);
        become_daemon(s, plan, xopd, parent);
    }
    close(ends[1]);
    s->log = ends[0];
    if (s->daemon < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no process: %s", strerror(errno));
    return XOP_OK;
}

/* Keeps the end of what the daemon says; false when it says no more. */
static bool read_log(struct op_scratch *s) {
    if (s->length > LOG_BYTES / 2) {
        size_t cut = s->length - LOG_BYTES / 4;
        memmove(s->text, s->text + cut, s->length - cut);
        s->length -= cut;
    }
    ssize_t n = read(s->log, s->text + s->length, LOG_BYTES - 1 - s->length);
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0)
        return false;
    s->length += (size_t)n;
    s->text[s->length] = 0;
    return true;
}

static enum xop_status await_ready(struct op_scratch *s, const struct op_scratch_plan *plan,
                                   struct xop_error *error) {
    struct pollfd ready = {.fd = s->log, .events = POLLIN};
    while (!strstr(s->text, "ready: ")) {
        int n = poll(&ready, 1, READY_LIMIT_MS);
        if (n < 0 && errno == EINTR)
            return xop_fail(error, XOP_CANCELLED, "interrupted");
        if (n == 0)
            return xop_fail(error, XOP_DEADLINE_EXCEEDED, "its xopd is not ready after %d s",
                            READY_LIMIT_MS / 1000);
        if (!read_log(s))
            return xop_fail(error, XOP_UNAVAILABLE, "its xopd ended before it was ready");
        /* The daemon goes on trying, and does not say so each time. */
        if (strstr(s->text, "; others are tried"))
            return xop_fail(error, XOP_UNAVAILABLE, "its xopd has no worker for the backend %s",
                            plan->backend);
    }
    return XOP_OK;
}

static void end_daemon(struct op_scratch *s) {
    if (s->daemon > 0) {
        kill(s->daemon, SIGTERM);
        while (read_log(s)) /* until every process of it has closed the pipe */
            ;
        while (waitpid(s->daemon, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (s->log >= 0)
        close(s->log);
}

/* ---- The work ---- */

/* Until the worker's end of a pipe closes; the daemon's log is read meanwhile, lest it wait. */
static void attend(struct op_scratch *s, int done) {
    struct pollfd both[] = {{.fd = done, .events = POLLIN}, {.fd = s->log, .events = POLLIN}};
    for (;;) {
        if (poll(both, 2, -1) < 0)
            continue; /* a signal, which was passed on */
        if (both[0].revents)
            return;
        if (both[1].revents && !read_log(s))
            both[1].fd = -1;
    }
}

static int work(struct session *session, struct op_scratch *s, const struct op_scratch_plan *plan) {
    int ends[2], how = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "no pipe: %s",
                            strerror(errno));
    fflush(NULL);
    s->worker = fork();
    if (s->worker == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        close(ends[0]);
        int status = plan->work(plan->arg, s->address);
        int output = session_finish_output();
        _exit(status ? status : output);
    }
    close(ends[1]);
    if (s->worker > 0) {
        working = s->worker;
        attend(s, ends[0]);
        while (waitpid(s->worker, &how, 0) < 0 && errno == EINTR)
            ;
        working = 0;
    }
    close(ends[0]);
    if (s->worker < 0)
        return session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "no process: %s",
                            strerror(errno));
    if (WIFSIGNALED(how))
        return session_fail(session, EX_SOFTWARE, XOP_INTERNAL,
                            "the library ended the process that asks its infer and its reference: "
                            "%s",
                            strsignal(WTERMSIG(how)));
    return WEXITSTATUS(how);
}

int op_scratch_run(struct session *session, const struct op_scratch_plan *plan) {
    struct sigaction pass_on = {.sa_handler = on_signal}, interrupt, terminate;
    struct op_scratch *s = calloc(1, sizeof *s);
    struct xop_error error;
    if (!s)
        return session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    s->log = -1;
    sigaction(SIGINT, &pass_on, &interrupt);
    sigaction(SIGTERM, &pass_on, &terminate);
    enum xop_status status = prepare(s, plan, &error);
    if (status == XOP_OK)
        status = start_daemon(s, plan, &error);
    if (status == XOP_OK)
        status = await_ready(s, plan, &error);
    int result;
    if (status == XOP_OK) {
        result = work(session, s, plan);
    } else {
        fputs(s->text, stderr);
        result = session_fail(session, session_exit(status), status, "%s", error.message);
    }
    end_daemon(s);
    remove_directory(s);
    free(s);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &terminate, NULL);
    return result;
}
