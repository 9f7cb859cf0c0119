/* daemon/keeper.c: what workers give is there for the next one, and no worker holds the parent up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/keeper.h"
#include "daemon/shared/channel.h"
#include "daemon/shared/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static struct keeper keeper;
static int parent, worker; /* the two ends of a worker's socket */

static void connect_worker(void) {
    struct xop_error error;
    int sockets[2];
    assert_int_equal(channel_pair(sockets, true, &error), XOP_OK);
    parent = sockets[0];
    worker = sockets[1];
}

static void end_worker(void) {
    close(worker);
    close(parent);
}

static int setup(void **state) {
    (void)state;
    keeper_open(&keeper);
    connect_worker();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    end_worker();
    keeper_close(&keeper);
    return 0;
}

static void say(uint32_t type, uint64_t number, uint64_t bytes, int fd) {
    struct keeper_message message = {.type = type, .number = number, .bytes = bytes};
    struct xop_error error;
    assert_int_equal(channel_send(worker, &message, sizeof message, NULL, 0, &fd, fd >= 0, &error),
                     XOP_OK);
}

/* Asks and returns the answer; *fd is what came with it, or -1. */
static struct keeper_message ask(uint32_t type, uint64_t number, uint64_t bytes, int *fd) {
    unsigned char packet[CHANNEL_BYTES];
    struct keeper_message answer;
    struct xop_error error;
    uint32_t nfds;
    size_t n;
    bool would_block;
    say(type, number, bytes, *fd);
    assert_true(keeper_serve(&keeper, parent));
    *fd = -1;
    assert_int_equal(channel_receive(worker, packet, &n, fd, 1, &nfds, &would_block, &error),
                     XOP_OK);
    assert_int_equal(n, sizeof answer);
    memcpy(&answer, packet, sizeof answer);
    assert_int_equal(answer.type, type);
    assert_int_equal(answer.number, number);
    return answer;
}

/* A file that says what it is. */
static int file_of(char letter) {
    int fd = memfd_create("kept", MFD_CLOEXEC);
    assert_int_equal(write(fd, &letter, 1), 1);
    return fd;
}

static void give(uint64_t number, char letter, enum xop_status expected) {
    int own = file_of(letter), fd = own;
    assert_int_equal(ask(KEEPER_KEEP, number, 4096, &fd).status, expected);
    assert_int_equal(fd, -1);
    close(own);
}

static void expect_kept(uint64_t number, char letter) {
    int fd = -1;
    char found = 0;
    struct keeper_message answer = ask(KEEPER_RECALL, number, 0, &fd);
    assert_int_equal(answer.status, XOP_OK);
    assert_int_equal(answer.bytes, 4096);
    assert_int_equal(pread(fd, &found, 1, 0), 1);
    assert_int_equal(found, letter);
    close(fd);
}

static void expect_unknown(uint64_t number) {
    int fd = -1;
    assert_int_equal(ask(KEEPER_RECALL, number, 0, &fd).status, XOP_NOT_FOUND);
    assert_int_equal(fd, -1);
}

static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void what_one_gave_the_next_can_have(void **state) {
    (void)state;
    expect_unknown(7);
    give(7, 'a', XOP_OK);
    give(8, 'b', XOP_OK);
    expect_kept(7, 'a');
    end_worker();
    connect_worker();
    expect_kept(8, 'b');
    expect_kept(7, 'a');
    expect_kept(7, 'a'); /* as often as one likes */
}

static void a_number_is_one_memorys(void **state) {
    (void)state;
    give(7, 'a', XOP_OK);
    give(7, 'b', XOP_ALREADY_EXISTS);
    give(0, 'b', XOP_ALREADY_EXISTS);
    expect_kept(7, 'a');
}

static void what_is_dropped_is_closed(void **state) {
    int before = open_files(), fd = -1;
    (void)state;
    for (uint64_t i = 1; i <= 100; i++)
        give(i, 'x', XOP_OK);
    assert_int_equal(open_files(), before + 100);
    for (uint64_t i = 1; i <= 100; i++)
        assert_int_equal(ask(KEEPER_DROP, i, 0, &fd).status, XOP_OK);
    assert_int_equal(ask(KEEPER_DROP, 5, 0, &fd).status, XOP_OK); /* it is gone: as was asked */
    assert_int_equal(open_files(), before);
    expect_unknown(5);
}

static void its_descriptors_have_a_limit(void **state) {
    struct rlimit limit, small;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = 256 + 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    keeper_open(&keeper);
    for (uint64_t i = 1; i <= 3; i++)
        give(i, 'x', XOP_OK);
    int before = open_files();
    give(4, 'x', XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(open_files(), before);
    int fd = -1;
    assert_int_equal(ask(KEEPER_DROP, 1, 0, &fd).status, XOP_OK);
    give(4, 'x', XOP_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void nonsense_ends_a_worker_and_nothing_else(void **state) {
    struct xop_error error;
    int before;
    (void)state;
    give(7, 'a', XOP_OK);
    before = open_files();
    say(99, 7, 0, -1);
    assert_false(keeper_serve(&keeper, parent));
    say(KEEPER_KEEP, 9, 4096, -1); /* without the descriptor it is about */
    assert_false(keeper_serve(&keeper, parent));
    int fd = file_of('z');
    say(99, 7, 0, fd); /* what comes along is closed */
    close(fd);
    assert_false(keeper_serve(&keeper, parent));
    assert_int_equal(channel_send(worker, "short", 5, NULL, 0, NULL, 0, &error), XOP_OK);
    assert_false(keeper_serve(&keeper, parent));
    assert_int_equal(open_files(), before);
    assert_true(keeper_serve(&keeper, parent)); /* there is nothing: no reason to wait or to end */
    close(worker);
    assert_false(keeper_serve(&keeper, parent));
    close(parent);
    connect_worker();
    expect_kept(7, 'a');
}

static void a_worker_that_does_not_read_does_not_hold_it_up(void **state) {
    bool served = true;
    (void)state;
    for (int i = 0; i < 100000 && served; i++) {
        say(KEEPER_RECALL, 7, 0, -1);
        served = keeper_serve(&keeper, parent);
    }
    assert_false(served);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_one_gave_the_next_can_have, setup, teardown),
        cmocka_unit_test_setup_teardown(a_number_is_one_memorys, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_dropped_is_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(its_descriptors_have_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense_ends_a_worker_and_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(a_worker_that_does_not_read_does_not_hold_it_up, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
