/* daemon/worker/populate.c: pages that are there before they are needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/worker/populate.h"

#define BYTES ((size_t)40 << 20) /* several pieces, the last a part of one */

static size_t resident(void *base) {
    size_t pages = BYTES / (size_t)sysconf(_SC_PAGESIZE), n = 0;
    unsigned char *there = calloc(pages, 1);
    assert_non_null(there);
    assert_int_equal(mincore(base, BYTES, there), 0);
    for (size_t i = 0; i < pages; i++)
        n += there[i] & 1;
    free(there);
    return n;
}

static void check(bool write) {
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    void *base = mmap(NULL, BYTES, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    assert_int_equal(resident(base), 0);
    struct populate *populate = populate_begin(base, BYTES, write);
    assert_non_null(populate);
    populate_end(populate);
    assert_int_equal(resident(base), BYTES / (size_t)sysconf(_SC_PAGESIZE));
    munmap(base, BYTES);
    close(fd);
}

static void what_may_be_written(void **state) {
    (void)state;
    check(true);
}

static void what_may_only_be_read(void **state) {
    (void)state;
    check(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_be_written),
        cmocka_unit_test(what_may_only_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
