/* Pages and plots of xopctl: escaping, numbers, charts of awkward values, files that appear whole.
 */
#include "client/xopctl/bench_plot.h"
#include "client/xopctl/html.h"
#include "client/xopctl/outfile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct plot_tick ticks[] = {{0, "none"}, {1, "a <few>"}};

/* What a chart of one series and a line to compare with draws; to be freed. */
static char *draw(const double *y, uint32_t n, bool is_log) {
    struct plot_series both[] = {
        {.name = "x & y", .color = 1, .n = n},
        {.name = "floor", .no_marks = true, .n = 1, .points = {{0, 2, ""}}}};
    struct plot plot = {"\"title\"", "x", "y", ticks, 2, is_log, both, 2};
    char *text = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        both[0].points[i].x = n > 1 ? (double)i / (n - 1) : 0;
        both[0].points[i].y = y[i];
    }
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    plot_write(out, &plot);
    assert_int_equal(fclose(out), 0);
    return text;
}

static uint32_t count(const char *text, const char *what) {
    uint32_t n = 0;
    for (text = strstr(text, what); text; text = strstr(text + 1, what))
        n++;
    return n;
}

static void text_is_escaped(void **state) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    (void)state;
    html_element(out, "td class=\"a\"", "%s", "<b>\"&\x01\n");
    fclose(out);
    assert_string_equal(text, "<td class=\"a\">&lt;b&gt;&quot;&amp;?\n</td>\n");
    free(text);
}

static void labels_and_names_are_escaped(void **state) {
    const double y[] = {1, 2};
    char *text = draw(y, 2, false);
    (void)state;
    assert_non_null(strstr(text, "a &lt;few&gt;"));
    assert_non_null(strstr(text, "x &amp; y"));
    assert_non_null(strstr(text, "&quot;title&quot;"));
    free(text);
}

static void each_point_has_a_mark(void **state) {
    const double y[] = {1, 20, 300, 4000};
    (void)state;
    for (int is_log = 0; is_log < 2; is_log++) {
        char *text = draw(y, 4, is_log);
        assert_int_equal(count(text, "class=\"dot s1\""), 4);
        assert_int_equal(count(text, "class=\"dot s0\""), 0);
        free(text);
    }
}

static void what_cannot_be_drawn_is_left_out(void **state) {
    const double y[] = {NAN, INFINITY, -1, 0, 5};
    (void)state;
    char *log_scale = draw(y, 5, true), *linear = draw(y, 5, false);
    assert_int_equal(count(log_scale, "class=\"dot s1\""), 1);
    assert_int_equal(count(linear, "class=\"dot s1\""), 2);
    assert_null(strstr(log_scale, "nan"));
    assert_null(strstr(log_scale, "inf"));
    assert_null(strstr(linear, "nan"));
    free(log_scale);
    free(linear);
}

static void numbers_have_three_digits(void **state) {
    char text[32];
    (void)state;
    assert_string_equal(plot_number(text, sizeof text, 0), "0");
    assert_string_equal(plot_number(text, sizeof text, 0.25), "0.25");
    assert_string_equal(plot_number(text, sizeof text, 999.4), "999");
    assert_string_equal(plot_number(text, sizeof text, 999.6), "1k");
    assert_string_equal(plot_number(text, sizeof text, 1234567), "1.23M");
    assert_string_equal(plot_time(text, sizeof text, 12), "12 ns");
    assert_string_equal(plot_time(text, sizeof text, 8208400), "8.21 ms");
    assert_string_equal(plot_time(text, sizeof text, 5e12), "5e+03 s");
}

static void a_page_appears_whole_or_not_at_all(void **state) {
    char directory[] = "/tmp/xopd-page-XXXXXX", name[64];
    struct xop_error error;
    struct outfile file;
    struct stat info;
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(name, sizeof name, "%s/page.html", directory);
    assert_int_equal(outfile_open(&file, name, &error), XOP_OK);
    html_text(file.stream, "half");
    outfile_close(&file);
    assert_int_equal(rmdir(directory), 0); /* nothing was left in it */
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(outfile_open(&file, name, &error), XOP_OK);
    html_text(file.stream, "whole");
    assert_int_equal(stat(name, &info), -1);
    assert_int_equal(outfile_finish(&file, &error), XOP_OK);
    assert_int_equal(stat(name, &info), 0);
    assert_int_equal(info.st_size, 5);
    outfile_close(&file);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(rmdir(directory), 0);
}

static void a_page_that_cannot_be_made_is_told(void **state) {
    struct xop_error error;
    struct outfile file;
    (void)state;
    assert_int_not_equal(outfile_open(&file, "/nonexistent/page.html", &error), XOP_OK);
    assert_non_null(strstr(error.message, "/nonexistent/page.html: cannot be created"));
    outfile_close(&file);
    assert_int_not_equal(outfile_open(&file, "/tmp", &error), XOP_OK);
    outfile_close(&file);
    assert_int_equal(outfile_open(&file, "/dev/full", &error), XOP_OK);
    html_text(file.stream, "lost");
    assert_int_not_equal(outfile_finish(&file, &error), XOP_OK);
    assert_non_null(strstr(error.message, "No space left"));
    outfile_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(labels_and_names_are_escaped),
        cmocka_unit_test(each_point_has_a_mark),
        cmocka_unit_test(what_cannot_be_drawn_is_left_out),
        cmocka_unit_test(numbers_have_three_digits),
        cmocka_unit_test(a_page_appears_whole_or_not_at_all),
        cmocka_unit_test(a_page_that_cannot_be_made_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
