/* daemon/shared/channel.c: packets whole or not at all, and no descriptor lost on the way. */
#include "daemon/shared/channel.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int sockets[2];
static char buffer[CHANNEL_BYTES];

static int setup(void **state) {
    struct xop_error error;
    (void)state;
    return channel_pair(sockets, true, &error) == XOP_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    close(sockets[0]);
    close(sockets[1]);
    return 0;
}

/* The lowest number that is free: it changes where a descriptor is leaked. */
static int lowest_free(void) {
    int fd = dup(sockets[0]);
    close(fd);
    return fd;
}

static void the_largest_packet_passes_and_a_larger_one_is_not_sent(void **state) {
    static char payload[CHANNEL_BYTES];
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    (void)state;
    memset(payload, 7, sizeof payload);
    assert_int_equal(
        channel_send(sockets[0], "head", 4, payload, CHANNEL_BYTES - 3, NULL, 0, &error),
        XOP_INTERNAL);
    assert_int_equal(
        channel_send(sockets[0], "head", 4, payload, CHANNEL_BYTES - 4, NULL, 0, &error), XOP_OK);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, NULL, 0, &nfds, &would_block, &error), XOP_OK);
    assert_int_equal(bytes, CHANNEL_BYTES);
    assert_memory_equal(buffer, "head\7\7", 6);
    assert_int_equal(buffer[CHANNEL_BYTES - 1], 7);
}

static void a_packet_that_was_cut_off_is_not_taken_for_whole(void **state) {
    static char larger[CHANNEL_BYTES + 100];
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    (void)state;
    assert_int_equal(send(sockets[0], larger, sizeof larger, 0), sizeof larger);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, NULL, 0, &nfds, &would_block, &error),
        XOP_UNAVAILABLE);
    assert_false(would_block);
    assert_int_equal(bytes, 0);
}

static void as_many_descriptors_pass_as_are_allowed(void **state) {
    int many[CHANNEL_FDS + 1], got[CHANNEL_FDS];
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    (void)state;
    for (size_t i = 0; i < CHANNEL_FDS + 1; i++)
        many[i] = sockets[0];
    assert_int_equal(channel_send(sockets[0], "x", 1, NULL, 0, many, CHANNEL_FDS + 1, &error),
                     XOP_INTERNAL);
    assert_int_equal(channel_send(sockets[0], "x", 1, NULL, 0, many, CHANNEL_FDS, &error), XOP_OK);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, got, CHANNEL_FDS, &nfds, &would_block, &error),
        XOP_OK);
    assert_int_equal(nfds, CHANNEL_FDS);
    for (uint32_t i = 0; i < nfds; i++) {
        assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
        close(got[i]);
    }
    int before = lowest_free();
    assert_int_equal(channel_send(sockets[0], "x", 1, NULL, 0, many, 5, &error), XOP_OK);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, got, 2, &nfds, &would_block, &error), XOP_OK);
    assert_int_equal(nfds, 2);
    close(got[0]);
    close(got[1]);
    assert_int_equal(lowest_free(), before);
}

static void a_full_socket_and_a_peer_that_is_gone_are_unavailable(void **state) {
    static char payload[CHANNEL_BYTES];
    struct xop_error error;
    uint32_t nfds, sent = 0;
    size_t bytes;
    bool would_block;
    (void)state;
    while (channel_send(sockets[0], payload, sizeof payload, NULL, 0, NULL, 0, &error) == XOP_OK)
        sent++;
    assert_true(sent > 0);
    assert_int_equal(error.status, XOP_UNAVAILABLE);
    close(sockets[0]);
    sockets[0] = -1;
    for (; sent > 0; sent--) /* what was sent before still arrives */
        assert_int_equal(
            channel_receive(sockets[1], buffer, &bytes, NULL, 0, &nfds, &would_block, &error),
            XOP_OK);
    assert_int_equal(
        channel_receive(sockets[1], buffer, &bytes, NULL, 0, &nfds, &would_block, &error), XOP_OK);
    assert_int_equal(bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_largest_packet_passes_and_a_larger_one_is_not_sent,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_packet_that_was_cut_off_is_not_taken_for_whole, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(as_many_descriptors_pass_as_are_allowed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_socket_and_a_peer_that_is_gone_are_unavailable,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
