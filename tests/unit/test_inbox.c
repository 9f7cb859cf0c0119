/* daemon/front/inbox.c: space is handed out once, and nobody else can write it. */
#include "daemon/front/inbox.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static struct inbox inbox;

static int setup(void **state) {
    struct xop_error error;
    (void)state;
    return inbox_open(&inbox, 16 * MIB, 2, &error) == XOP_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    inbox_close(&inbox);
    return 0;
}

static void blocks_do_not_overlap_and_come_back(void **state) {
    enum { N = 4096 };
    static struct inbox_block blocks[N];
    uint64_t n = 0;
    (void)state;
    while (n < N && inbox_take(&inbox, n % 2, 5000, &blocks[n])) {
        assert_true(blocks[n].offset + 5000 <= inbox.bytes);
        inbox.base[blocks[n].offset] = (unsigned char)n;
        inbox.base[blocks[n].offset + 4999] = (unsigned char)n;
        n++;
    }
    assert_true(n > 3000 && n < N);
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(inbox.base[blocks[i].offset], (unsigned char)i);
        assert_int_equal(inbox.base[blocks[i].offset + 4999], (unsigned char)i);
    }
    for (uint64_t i = 0; i < n; i++)
        inbox_give(&inbox, &blocks[i]);
    assert_int_equal(inbox.used, 0);
    struct inbox_block whole;
    assert_true(inbox_take(&inbox, 0, inbox_largest(&inbox), &whole));
    assert_true(inbox_give(&inbox, &whole));
}

static void more_than_there_is_is_refused(void **state) {
    struct inbox_block block;
    (void)state;
    assert_false(inbox_take(&inbox, 0, inbox_largest(&inbox) + 1, &block));
    assert_false(inbox_take(&inbox, 0, UINT64_MAX, &block));
    assert_true(inbox_take(&inbox, 0, 0, &block));
    assert_int_equal(block.bytes, 0);
    assert_false(inbox_give(&inbox, &block));
}

static void its_descriptor_cannot_be_mapped_for_writing_or_resized(void **state) {
    (void)state;
    void *map = mmap(NULL, inbox.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, inbox.fd, 0);
    assert_ptr_equal(map, MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(inbox.fd, 0), -1);
    assert_int_equal(pwrite(inbox.fd, "x", 1, 0), -1);
    map = mmap(NULL, inbox.bytes, PROT_READ, MAP_SHARED, inbox.fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map, inbox.bytes, PROT_READ | PROT_WRITE), -1);
    munmap(map, inbox.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_do_not_overlap_and_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(more_than_there_is_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(its_descriptor_cannot_be_mapped_for_writing_or_resized,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
