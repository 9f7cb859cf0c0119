#include "log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    int priority; /* syslog's number, which the journal reads from "<N>" */
} levels[LOG_LEVELS] = {{"error", 3}, {"warn", 4}, {"info", 6}, {"debug", 7}};

static const char *log_role = "xopd";
static _Atomic enum log_level threshold = LOG_LEVEL_INFO;
static bool to_journal;

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
    /* One write, so that lines of several processes stay whole. A log that is full or gone is no
     * reason to stop serving. */
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}

void log_write(enum log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_vwrite(level, format, args);
    va_end(args);
}
