/* daemon/log.c: one line an event, whatever is in it, and only from the level on that was set. */
#include "daemon/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int kept, written; /* standard error, and what stands in its place */

static int catch_output(void **state) {
    FILE *file = tmpfile();
    (void)state;
    kept = dup(STDERR_FILENO);
    written = file ? dup(fileno(file)) : -1;
    if (file)
        fclose(file);
    unsetenv("JOURNAL_STREAM");
    if (kept < 0 || written < 0 || dup2(written, STDERR_FILENO) < 0)
        return -1;
    log_init("test", LOG_LEVEL_INFO);
    return 0;
}

static int restore_output(void **state) {
    (void)state;
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(written);
    return 0;
}

/* What was written, from the role on. */
static const char *text(void) {
    static char bytes[4096];
    ssize_t n = pread(written, bytes, sizeof bytes - 1, 0);
    assert_true(n >= 0);
    bytes[n] = 0;
    const char *role = strstr(bytes, "test: ");
    return role ? role + strlen("test: ") : bytes;
}

static void what_would_end_a_line_does_not(void **state) {
    (void)state;
    log_info("a\nb\rc\x1b[31md\te\x7f \xc3\xa9");
    assert_string_equal(text(), "a b c [31md e  \xc3\xa9\n");
}

static void a_line_that_is_too_long_says_so(void **state) {
    char letters[3000];
    (void)state;
    memset(letters, 'x', sizeof letters);
    letters[sizeof letters - 1] = 0;
    log_info("%s", letters);
    const char *line = text();
    size_t n = strlen(line);
    assert_true(n > 1000 && n < 1400);
    assert_string_equal(line + n - 5, "x...\n");
}

static void levels_are_honoured_and_change(void **state) {
    (void)state;
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("no");
    assert_false(log_writes(LOG_LEVEL_WARN));
    assert_string_equal(text(), "");
    log_set_level(LOG_LEVEL_DEBUG);
    assert_true(log_writes(LOG_LEVEL_DEBUG));
    log_debug("yes");
    assert_string_equal(text(), "yes\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, catch_output, restore_output)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_would_end_a_line_does_not),
        TEST(a_line_that_is_too_long_says_so),
        TEST(levels_are_honoured_and_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
