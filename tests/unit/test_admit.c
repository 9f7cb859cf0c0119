/* daemon/front/admit.c: what messages a connection may send, and what its requests get. */
#include "daemon/front/admit.h"
#include "daemon/front/identity.h"
#include "daemon/front/shared.h"
#include "daemon/shared/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct config config;
static struct front front;
static struct io_thread thread;
static struct identity identity;
static struct connection connection;
static struct xop_error error;

static int set_up(void **state) {
    (void)state;
    config = (struct config){.max_in_flight = 4096};
    front.config = &config;
    thread.config = config;
    if (!front.inbox.shared && !(front.inbox.shared = arena_new(UINT64_C(1) << 20)))
        return -1;
    thread.front = &front;
    identity = (struct identity){.name = "uid:1", .policy = "team", .priority = 7};
    connection = (struct connection){.thread = &thread, .identity = &identity};
    return 0;
}

static int free_inbox(void **state) {
    (void)state;
    arena_free(front.inbox.shared);
    return 0;
}

static void administration_alone_takes_an_administrator(void **state) {
    (void)state;
    for (int type = MESSAGE_FORWARD; type < MESSAGE_TYPES; type++) {
        bool for_admin = type == MESSAGE_DEFINE || type == MESSAGE_LOAD || type == MESSAGE_DRAIN ||
                         type == MESSAGE_RELOAD;
        identity.role = POLICY_USE;
        assert_int_equal(admit_message(&connection, (enum message_type)type, &error),
                         for_admin ? XOP_PERMISSION_DENIED : XOP_OK);
        identity.role = POLICY_ADMIN;
        assert_int_equal(admit_message(&connection, (enum message_type)type, &error), XOP_OK);
    }
}

static void what_frees_is_never_one_too_many(void **state) {
    (void)state;
    identity.role = POLICY_USE;
    identity.rate = identity.burst = 1;
    assert_int_equal(admit_message(&connection, MESSAGE_FORWARD, &error), XOP_OK);
    identity.full_ns = io_now() + UINT64_C(3600000000000);
    assert_int_equal(admit_message(&connection, MESSAGE_FORWARD, &error), XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(admit_message(&connection, MESSAGE_PING, &error), XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(admit_message(&connection, MESSAGE_FREE, &error), XOP_OK);
    assert_int_equal(admit_message(&connection, MESSAGE_CANCEL, &error), XOP_OK);
    assert_int_equal(admit_message(&connection, MESSAGE_DETACH, &error), XOP_OK);
}

static void priorities_are_lowered_to_the_highest_allowed(void **state) {
    (void)state;
    assert_int_equal(admit_priority(&connection, 7), 7);
    assert_int_equal(admit_priority(&connection, -8), -8);
    identity.priority = -2;
    assert_int_equal(admit_priority(&connection, 7), -2);
    assert_int_equal(admit_priority(&connection, -2), -2);
    assert_int_equal(admit_priority(&connection, -3), -3);
}

static void hello_announces_the_lower_limit(void **state) {
    (void)state;
    uint64_t body = admit_max_body(&connection);
    assert_true(body > 1000);
    assert_int_equal(admit_max_in_flight(&connection), 4096);
    identity.most[QUOTA_IN_FLIGHT] = 5000;
    identity.most[QUOTA_INBOX] = body + 1;
    assert_int_equal(admit_max_in_flight(&connection), 4096);
    assert_int_equal(admit_max_body(&connection), body);
    identity.most[QUOTA_IN_FLIGHT] = 3;
    identity.most[QUOTA_INBOX] = 1000;
    assert_int_equal(admit_max_in_flight(&connection), 3);
    assert_int_equal(admit_max_body(&connection), 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(administration_alone_takes_an_administrator, set_up),
        cmocka_unit_test_setup(what_frees_is_never_one_too_many, set_up),
        cmocka_unit_test_setup(priorities_are_lowered_to_the_highest_allowed, set_up),
        cmocka_unit_test_setup(hello_announces_the_lower_limit, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, free_inbox);
}
