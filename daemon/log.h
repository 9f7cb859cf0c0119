/*
 * One line an event, to standard error: for the journal with its priority prefix, for a person with
 * time and role. Text that came from a client goes through message_quote before it gets here; what
 * would end a line or act on a terminal is replaced whoever wrote it. Any thread may log; lines
 * never mix.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdarg.h>
#include <xop/types.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG, LOG_LEVELS };

/* role: "parent", "front", "worker"; kept by pointer. */
void log_init(const char *role, enum log_level level);
/* Of this process, from now on. */
void log_set_level(enum log_level level);
const char *log_level_name(enum log_level level);

/* Whether lines of that level are written, for those that cost something to make. */
bool log_writes(enum log_level level);
void log_write(enum log_level level, const char *format, ...) XOP_PRINTF(2, 3);
void log_vwrite(enum log_level level, const char *format, va_list args);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
