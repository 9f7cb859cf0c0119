/* daemon/worker/operators.c, library.c and declaration.c: what is offered, and what is refused. */
#include "daemon/worker/operators.h"

#include "daemon/worker/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static enum xop_status infer(const struct xop_call *call, struct xop_plan *plan,
                             struct xop_error *error) {
    (void)error;
    plan->out[0] = call->in[0];
    return XOP_OK;
}

static enum xop_status launch(const struct xop_launch *l, struct xop_error *error) {
    (void)l, (void)error;
    return XOP_OK;
}

static const struct xop_operand x = {"x", "anything", 0, 0}, y = {"y", "the same", 0, 0};

/* An operator that nothing is wrong with, for a test to change. */
static struct xop_op proper(const char *name) {
    struct xop_op op = {.abi = XOP_OP_ABI, .name = name, .doc = "words", .dtypes = XOP_FLOATS};
    op.pass[XOP_FORWARD] = (struct xop_signature){&x, &y, 1, 1, infer, launch, 1, -1};
    return op;
}

static struct worker worker;

static int empty(void **state) {
    (void)state;
    memset(&worker, 0, sizeof worker);
    return 0;
}

static enum xop_status add(const struct xop_op *const *ops, uint32_t n, struct xop_error *error) {
    struct xop_library library = {XOP_OP_ABI, "cpu", ops, n};
    return operators_add(&worker, &library, error);
}

static void refuses(struct xop_op op, const char *why) {
    const struct xop_op *list[] = {&op};
    struct xop_error error;
    assert_int_equal(add(list, 1, &error), XOP_FAILED_PRECONDITION);
    if (!strstr(error.message, why))
        fail_msg("\"%s\" does not say \"%s\"", error.message, why);
    assert_int_equal(worker.nops, 0);
}

static void wrong_declarations_are_refused(void **state) {
    static const struct xop_operand twice[] = {{"x", "", 0, 0}, {"x", "", 0, 0}};
    static const struct xop_attr_spec bare = {"a", "doc", XOP_ATTR_INT, false, {NULL, 0, 0, {0}}};
    static const struct xop_attr_spec null = {
        "a", "doc", XOP_ATTR_STRING, false, {NULL, XOP_ATTR_STRING, 4, {.string = NULL}}};
    struct xop_op op;
    (void)state;
    op = proper("a"), op.abi = 99, refuses(op, "another version of xop/op.h");
    op = proper("Upper"), refuses(op, "no proper name");
    op = proper("a"), op.name = NULL, refuses(op, "no proper name");
    op = proper("a"), op.doc = "\xff\xfe", refuses(op, "no proper name or documentation");
    op = proper("a"), op.dtypes = 0, refuses(op, "no proper dtypes");
    op = proper("a"), op.dtypes = 1, refuses(op, "no proper dtypes");
    op = proper("a"), op.pass[0].launch = NULL, refuses(op, "no forward");
    op = proper("a"), op.pass[0].infer = NULL, refuses(op, "without infer");
    op = proper("a"), op.pass[0].in = twice, op.pass[0].nin = 2, refuses(op, "of one name");
    op = proper("a"), op.pass[0].nin = XOP_MAX_INPUTS + 1, refuses(op, "too many operands");
    op = proper("a"), op.pass[0].index_operand = 1, refuses(op, "index operand");
    op = proper("a"), op.pass[0].index_operand = -2, refuses(op, "index operand");
    op = proper("a"), op.attrs = &bare, op.nattrs = 1, refuses(op, "default is of another type");
    op = proper("a"), op.attrs = &null, op.nattrs = 1, refuses(op, "no proper string");
}

static void a_library_is_taken_whole_or_not_at_all(void **state) {
    static struct xop_op many[WORKER_MAX_OPS + 1];
    static char names[WORKER_MAX_OPS + 1][8];
    static const struct xop_op *list[WORKER_MAX_OPS + 1];
    struct xop_op good = proper("good"), bad = proper("Bad");
    const struct xop_op *mixed[] = {&good, &bad}, *doubled[] = {&good, &good};
    struct xop_error error;
    (void)state;
    assert_int_equal(add(mixed, 2, &error), XOP_FAILED_PRECONDITION);
    assert_int_equal(worker.nops, 0);
    assert_int_equal(add(doubled, 2, &error), XOP_FAILED_PRECONDITION);
    assert_int_equal(worker.nops, 0);
    for (unsigned i = 0; i <= WORKER_MAX_OPS; i++) {
        snprintf(names[i], sizeof names[i], "n%u", i);
        many[i] = proper(names[i]);
        list[i] = &many[i];
    }
    assert_int_equal(add(list, WORKER_MAX_OPS + 1, &error), XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(worker.nops, 0);
    assert_int_equal(add(list, WORKER_MAX_OPS, &error), XOP_OK);
    assert_int_equal(worker.nops, WORKER_MAX_OPS);
}

static void a_later_operator_takes_the_place_of_an_earlier(void **state) {
    struct xop_op a = proper("a"), b = proper("b"), again = proper("a");
    const struct xop_op *first[] = {&a, &b}, *second[] = {&again};
    struct xop_error error;
    (void)state;
    assert_int_equal(add(first, 2, &error), XOP_OK);
    assert_int_equal(add(second, 1, &error), XOP_OK);
    assert_int_equal(worker.nops, 2);
    assert_ptr_equal(worker.ops[0], &again);
}

/* Requests name operators by their place in this list, so that none may be missing from it. */
static void the_catalogue_has_every_operator_in_its_place(void **state) {
    const struct xop_attr_spec odd = {
        "eps", "doc", XOP_ATTR_FLOAT, false, {NULL, XOP_ATTR_FLOAT, 1, {.f = -INFINITY}}};
    struct xop_op a = proper("a"), b = proper("b");
    const struct xop_op *list[] = {&a, &b};
    struct xop_error error;
    const char *name, *value;
    (void)state;
    a.attrs = &odd;
    a.nattrs = 1;
    assert_int_equal(add(list, 2, &error), XOP_OK);
    char *text = operators_describe(&worker);
    assert_non_null(text);
    json_t *document = json_loads(text, 0, NULL);
    json_t *ops = json_object_get(document, "operators");
    assert_int_equal(json_array_size(ops), 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(json_unpack(json_array_get(ops, i), "{s:s}", "name", &name), 0);
        assert_string_equal(name, list[i]->name);
    }
    assert_int_equal(
        json_unpack(json_array_get(ops, 0), "{s:[{s:s}]}", "attributes", "default", &value), 0);
    assert_string_equal(value, "-inf");
    json_decref(document);
    free(text);
}

/* ---- Files ---- */

static char directory[] = "/tmp/xop-operators-XXXXXX";

static void copy(const char *from, const char *name, size_t most) {
    char path[256], *bytes = malloc(most);
    FILE *in = fopen(from, "re");
    assert_non_null(in);
    size_t n = fread(bytes, 1, most, in);
    fclose(in);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
    free(bytes);
}

static void opening_says(const char *name, enum xop_status status, const char *why) {
    const struct xop_library *library;
    struct xop_error error;
    void *handle;
    assert_int_equal(library_open(directory, name, "cpu", &handle, &library, &error), status);
    if (!strstr(error.message, why))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, error.message, why);
}

static void files_that_cannot_be_used_are_refused_by_name(void **state) {
    char path[256], link[256];
    const char *build = getenv("XOP_BUILD");
    (void)state;
    snprintf(path, sizeof path, "%s/xop-cpu.so", build ? build : "");
    if (access(path, R_OK) != 0)
        skip();
    assert_non_null(mkdtemp(directory));
    copy(path, "cut.so", 20000);
    copy(path, "head.so", 100);
    copy(path, "no_symbol.so", 1 << 24);
    copy(path, "open.so", 1 << 24);
    copy("/etc/passwd", "text.so", 4096);
    copy("/etc/passwd", "fast-cuda.so", 4096);
    snprintf(link, sizeof link, "%s/out.so", directory);
    assert_int_equal(symlink(path, link), 0);
    snprintf(link, sizeof link, "%s/inside.so", directory);
    assert_int_equal(symlink("no_symbol.so", link), 0);
    snprintf(link, sizeof link, "%s/pipe.so", directory);
    assert_int_equal(mkfifo(link, 0600), 0);
    snprintf(link, sizeof link, "%s/open.so", directory);
    assert_int_equal(chmod(link, 0666), 0);

    opening_says("cut.so", XOP_FAILED_PRECONDITION, "truncated");
    opening_says("head.so", XOP_FAILED_PRECONDITION, "truncated");
    opening_says("text.so", XOP_FAILED_PRECONDITION, "no shared object");
    opening_says("no_symbol.so", XOP_FAILED_PRECONDITION, "exports no xop_library");
    opening_says("inside.so", XOP_FAILED_PRECONDITION, "exports no xop_library");
    opening_says("out.so", XOP_FAILED_PRECONDITION, "symbolic link out of the directory");
    opening_says("open.so", XOP_FAILED_PRECONDITION, "everybody may write it");
    opening_says("pipe.so", XOP_FAILED_PRECONDITION, "no regular file");
    opening_says("missing.so", XOP_FAILED_PRECONDITION, "No such file");
    opening_says("fast-cuda.so", XOP_UNIMPLEMENTED, "another backend");

    static const char *const names[] = {"cut.so",    "head.so", "no_symbol.so",
                                        "open.so",   "text.so", "out.so",
                                        "inside.so", "pipe.so", "fast-cuda.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(link, sizeof link, "%s/%s", directory, names[i]);
        unlink(link);
    }
    rmdir(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(wrong_declarations_are_refused, empty),
        cmocka_unit_test_setup(a_library_is_taken_whole_or_not_at_all, empty),
        cmocka_unit_test_setup(a_later_operator_takes_the_place_of_an_earlier, empty),
        cmocka_unit_test_setup(the_catalogue_has_every_operator_in_its_place, empty),
        cmocka_unit_test(files_that_cannot_be_used_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
