#include "log.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    int priority; /* syslog's number, which the journal reads from "<N>" */
} levels[LOG_LEVELS] = {{"error", 3}, {"warn", 4}, {"info", 6}, {"debug", 7}};

static const char *log_role = "xopd";
static _Atomic enum log_level threshold = LOG_LEVEL_INFO;
static bool to_journal;

/* A reader of the log that stands still must not make the server do so. */
static enum { TO_FILE, TO_SOCKET, TO_READER } destination;
static _Atomic uint64_t lost; /* lines, since the last that was written */
/* What a reader that is only slow is given; once it has let a line go by, the next do not wait. */
#define PATIENCE_MS 200

const char *log_level_name(enum log_level level) {
    return (unsigned)level < LOG_LEVELS ? levels[level].name : "?";
}

void log_set_level(enum log_level level) {
    atomic_store_explicit(&threshold, level, memory_order_relaxed);
}

/* Whether standard error is the stream that the variable names as "device:inode". One that was
 * inherited by a shell, and redirected there, is not. */
static bool is_journal(void) {
    const char *stream = getenv("JOURNAL_STREAM");
    char mine[64];
    struct stat info;
    if (!stream || fstat(STDERR_FILENO, &info) < 0)
        return false;
    snprintf(mine, sizeof mine, "%ju:%ju", (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    return strcmp(stream, mine) == 0;
}

void log_init(const char *role, enum log_level level) {
    log_role = role;
    log_set_level(level);
    to_journal = is_journal();
    struct stat info;
    destination = TO_READER; /* a pipe or a terminal */
    if (fstat(STDERR_FILENO, &info) < 0 || S_ISREG(info.st_mode))
        destination = TO_FILE;
    else if (S_ISSOCK(info.st_mode))
        destination = TO_SOCKET;
}

/* Whether it was written, whole and without waiting for anybody. */
static bool try_write(const char *line, size_t n) {
    const struct iovec part = {(void *)(uintptr_t)line, n};
    ssize_t written;
    if (destination == TO_SOCKET)
        return send(STDERR_FILENO, line, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    written = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT);
    if (written < 0 && errno == EOPNOTSUPP) /* there was room a moment ago */
        written = write(STDERR_FILENO, line, n);
    return written >= 0;
}

/* One write a line, so that lines of several processes stay whole. A log that is full or gone is no
 * reason to stop serving. */
static void put(const char *line, size_t n) {
    if (destination == TO_FILE) {
        ssize_t ignored = write(STDERR_FILENO, line, n);
        (void)ignored;
        return;
    }
    struct pollfd ready = {STDERR_FILENO, POLLOUT, 0};
    int patience = atomic_load_explicit(&lost, memory_order_relaxed) ? 0 : PATIENCE_MS;
    if (poll(&ready, 1, patience) <= 0 || !(ready.revents & POLLOUT) || !try_write(line, n))
        atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
}

static size_t put_head(char *line, size_t capacity, enum log_level level) {
    int n;
    if (to_journal) {
        n = snprintf(line, capacity, "<%d>%s: ", levels[level].priority, log_role);
    } else {
        struct timespec now;
        struct tm tm;
        char clock[32];
        clock_gettime(CLOCK_REALTIME, &now);
        if (!gmtime_r(&now.tv_sec, &tm) || !strftime(clock, sizeof clock, "%FT%T", &tm))
            clock[0] = 0;
        n = snprintf(line, capacity, "%s.%03ldZ %-5s %s: ", clock, now.tv_nsec / 1000000,
                     levels[level].name, log_role);
    }
    return n < 0 ? 0 : (size_t)n;
}

bool log_writes(enum log_level level) {
    return level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

/* Lines that went by are counted in the log once it is read again. */
static void tell_lost(void) {
    struct pollfd ready = {STDERR_FILENO, POLLOUT, 0};
    char line[160];
    if (atomic_load_explicit(&lost, memory_order_relaxed) == 0 || poll(&ready, 1, 0) <= 0 ||
        !(ready.revents & POLLOUT))
        return;
    uint64_t n = atomic_exchange(&lost, 0);
    size_t head = put_head(line, sizeof line, LOG_LEVEL_WARN);
    int text = snprintf(line + head, sizeof line - head,
                        "lines that are not here, since nobody read the log: %llu\n",
                        (unsigned long long)n);
    if (n > 0 && text > 0 && !try_write(line, head + (size_t)text))
        atomic_fetch_add(&lost, n);
}

void log_vwrite(enum log_level level, const char *format, va_list args) {
    static const char cut[] = "...";
    char line[1400];
    if (!log_writes(level))
        return;
    size_t head = put_head(line, sizeof line, level), room = sizeof line - head - 1;
    int n = vsnprintf(line + head, room, format, args);
    if (n < 0)
        return;
    size_t used = head + ((size_t)n < room ? (size_t)n : room - 1);
    if ((size_t)n >= room)
        memcpy(line + used - strlen(cut), cut, strlen(cut));
    for (size_t i = head; i < used; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = ' ';
    line[used++] = '\n';
    tell_lost();
    put(line, used);
}

void log_write(enum log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_vwrite(level, format, args);
    va_end(args);
}
