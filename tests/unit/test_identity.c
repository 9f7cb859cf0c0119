/* daemon/front/identity.c: joining, counting from many threads, rates, and policies that change. */
#include "daemon/front/identity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

static struct identities all;
static struct policy policy;
static struct xop_error error;

/* A policy for users: from the first rule on, as they are added. */
static struct policy_rule *add_rule(const char *name, const char *match, const char *role) {
    struct policy_rule *rule = policy_rule(&policy, name, &error);
    assert_non_null(rule);
    assert_int_equal(policy_add_match(&policy, rule, match, &error), XOP_OK);
    assert_int_equal(policy_set_role(rule, role, &error), XOP_OK);
    return rule;
}

static int open_all(void **state) {
    (void)state;
    policy = (struct policy){0};
    identity_open(&all);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    identity_close(&all);
    return 0;
}

static void load(void) { assert_int_equal(identity_load(&all, &policy, &error), XOP_OK); }

static struct identity *join(uid_t uid, struct identity *instead) {
    struct policy_peer peer = {.is_local = true, .uid = uid};
    return identity_join(&all, &peer, NULL, instead, SECOND, &error);
}

static void says(const char *part) {
    if (!strstr(error.message, part))
        fail_msg("\"%s\" is not in \"%s\"", part, error.message);
}

static void connections_of_one_user_are_one_identity(void **state) {
    (void)state;
    add_rule("all", "any", "use")->limits.most[QUOTA_CONNECTIONS] = 2;
    load();
    struct identity *first = join(1, NULL), *other = join(2, NULL);
    assert_non_null(first);
    assert_ptr_equal(join(1, NULL), first);
    assert_ptr_not_equal(other, first);
    assert_null(join(1, NULL));
    assert_int_equal(error.status, XOP_RESOURCE_EXHAUSTED);
    says("uid:1 may have 2 connections (policy all.connections), of which 2 are used");
    assert_ptr_equal(join(2, NULL), other);
    identity_leave(&all, first);
    assert_ptr_equal(join(1, NULL), first);
}

static void who_no_policy_lets_in_is_refused(void **state) {
    struct policy_peer stranger = {.address = "10.0.0.1"};
    unsigned char digest[POLICY_DIGEST];
    (void)state;
    add_rule("users", "uid:1", "use");
    add_rule("out", "uid:2", "none");
    strcpy(policy.tokens[policy.ntokens].name, "ci");
    policy_digest("0123456789abcdef", policy.tokens[policy.ntokens++].digest);
    load();
    assert_null(join(2, NULL));
    assert_int_equal(error.status, XOP_PERMISSION_DENIED);
    says("uid:2 may not use this server (policy out)");
    assert_null(join(3, NULL));
    assert_int_equal(error.status, XOP_PERMISSION_DENIED);
    says("uid:3 may not use this server: no policy is about it");
    assert_null(identity_join(&all, &stranger, NULL, NULL, 0, &error));
    assert_int_equal(error.status, XOP_UNAUTHENTICATED);
    says("give a token, or a certificate");
    /* A wrong token is not made up for by the right user. */
    struct policy_peer peer = {.is_local = true, .uid = 1};
    policy_digest("0123456789abcdeF", digest);
    assert_null(identity_join(&all, &peer, digest, NULL, 0, &error));
    assert_int_equal(error.status, XOP_UNAUTHENTICATED);
    policy_digest("0123456789abcdef", digest);
    assert_non_null(identity_join(&all, &peer, digest, NULL, 0, &error));
    assert_string_equal(peer.token, "ci");
}

static void a_token_is_ignored_where_there_are_none(void **state) {
    struct policy_peer peer = {.is_local = true, .uid = 1};
    unsigned char digest[POLICY_DIGEST];
    (void)state;
    add_rule("all", "any", "use");
    load();
    policy_digest("0123456789abcdef", digest);
    const struct identity *identity = identity_join(&all, &peer, digest, NULL, 0, &error);
    assert_non_null(identity);
    assert_string_equal(identity->name, "uid:1");
}

static void a_quota_is_taken_and_given_back(void **state) {
    struct identity *counted, *more;
    (void)state;
    add_rule("all", "any", "use")->limits.most[QUOTA_INBOX] = 100;
    load();
    struct identity *one = join(1, NULL), *two = join(2, NULL);
    assert_int_equal(identity_take(one, QUOTA_INBOX, 60, &counted, &error), XOP_OK);
    assert_ptr_equal(counted, one);
    assert_int_equal(identity_take(one, QUOTA_INBOX, 41, &more, &error), XOP_RESOURCE_EXHAUSTED);
    assert_null(more);
    says("uid:1 may have 100 bytes of requests (policy all.inbox), of which 60 are used: no 41");
    assert_int_equal(identity_take(one, QUOTA_INBOX, UINT64_MAX, &more, &error),
                     XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(identity_take(two, QUOTA_INBOX, 100, &more, &error), XOP_OK);
    assert_int_equal(identity_take(one, QUOTA_INBOX, 40, &more, &error), XOP_OK);
    identity_give(counted, QUOTA_INBOX, 60);
    identity_give(more, QUOTA_INBOX, 40);
    assert_int_equal(identity_take(one, QUOTA_INBOX, 100, &more, &error), XOP_OK);
    /* Without a limit nothing is counted, and nothing can be given back. */
    assert_int_equal(identity_take(one, QUOTA_RESIDENT, UINT64_MAX, &counted, &error), XOP_OK);
    assert_null(counted);
    identity_give(counted, QUOTA_RESIDENT, UINT64_MAX);
    assert_int_equal(atomic_load(&one->used[QUOTA_RESIDENT]), 0);
}

static void a_bucket_of_requests_fills_with_time(void **state) {
    uint64_t now = 5 * SECOND;
    (void)state;
    struct policy_rule *rule = add_rule("all", "any", "use");
    rule->limits.rate = 10;
    rule->limits.burst = 3;
    load();
    struct identity *one = join(1, NULL), *two = join(2, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(identity_request(one, now, &error), XOP_OK);
    assert_int_equal(identity_request(one, now, &error), XOP_RESOURCE_EXHAUSTED);
    says("uid:1 may send 10 requests a second, 3 at once (policy all.rate): try again in 100 ms");
    assert_int_equal(identity_request(two, now, &error), XOP_OK);
    assert_int_equal(identity_request(one, now + SECOND / 10 - 1, &error), XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(identity_request(one, now + SECOND / 10, &error), XOP_OK);
    assert_int_equal(identity_request(one, now + SECOND / 10, &error), XOP_RESOURCE_EXHAUSTED);
    /* However long it waited, no more than the burst is there. */
    now += 100 * SECOND;
    for (int i = 0; i < 3; i++)
        assert_int_equal(identity_request(one, now, &error), XOP_OK);
    assert_int_equal(identity_request(one, now, &error), XOP_RESOURCE_EXHAUSTED);
}

static void to_connect_anew_fills_no_bucket(void **state) {
    (void)state;
    struct policy_rule *rule = add_rule("all", "any", "use");
    rule->limits.rate = rule->limits.burst = 1;
    load();
    struct identity *one = join(1, NULL);
    assert_int_equal(identity_request(one, SECOND, &error), XOP_OK);
    identity_leave(&all, one);
    assert_ptr_equal(join(1, NULL), one);
    assert_int_equal(identity_request(one, SECOND, &error), XOP_RESOURCE_EXHAUSTED);
}

static size_t listed(void) {
    json_t *list = identity_list(&all, NULL);
    size_t count = json_array_size(list);
    json_decref(list);
    return count;
}

static size_t kept(void) {
    size_t count = 0;
    for (uint32_t i = 0; i < IDENTITY_BUCKETS; i++)
        for (const struct identity *it = all.buckets[i]; it; it = it->next)
            count++;
    return count;
}

static void an_identity_ends_when_nothing_is_counted_for_it(void **state) {
    struct identity *counted;
    (void)state;
    add_rule("all", "any", "use")->limits.most[QUOTA_RESIDENT] = 10;
    load();
    struct identity *one = join(1, NULL);
    assert_int_equal(identity_take(one, QUOTA_RESIDENT, 10, &counted, &error), XOP_OK);
    identity_leave(&all, one);
    /* Who was counted may still give back, and connects anew to what it has. */
    assert_ptr_equal(join(1, NULL), one);
    assert_int_equal(identity_take(one, QUOTA_RESIDENT, 1, &counted, &error),
                     XOP_RESOURCE_EXHAUSTED);
    identity_give(one, QUOTA_RESIDENT, 10);
    identity_leave(&all, one);
    /* Each bucket is swept when somebody joins there. */
    for (uid_t uid = 100; uid < 100 + 16 * IDENTITY_BUCKETS; uid++)
        identity_leave(&all, join(uid, NULL));
    assert_in_range(kept(), 1, IDENTITY_BUCKETS);
    assert_int_equal(listed(), 0);
}

static void changed_policies_hold_for_those_that_are_there(void **state) {
    struct identity *before, *after;
    (void)state;
    struct policy_rule *rule = add_rule("team", "uid:1", "use");
    rule->limits.most[QUOTA_IN_FLIGHT] = 2;
    load();
    struct identity *one = join(1, NULL);
    assert_int_equal(identity_take(one, QUOTA_IN_FLIGHT, 2, &before, &error), XOP_OK);
    /* Fewer, another role, and a limit where there was none. */
    rule->role = POLICY_ADMIN;
    rule->limits.most[QUOTA_IN_FLIGHT] = 1;
    rule->limits.most[QUOTA_INBOX] = 5;
    load();
    assert_ptr_equal(join(1, one), one);
    assert_int_equal(atomic_load(&one->role), POLICY_ADMIN);
    assert_int_equal(atomic_load(&one->used[QUOTA_CONNECTIONS]), 1);
    assert_int_equal(identity_take(one, QUOTA_IN_FLIGHT, 1, &after, &error),
                     XOP_RESOURCE_EXHAUSTED);
    assert_int_equal(identity_take(one, QUOTA_INBOX, 6, &after, &error), XOP_RESOURCE_EXHAUSTED);
    identity_give(before, QUOTA_IN_FLIGHT, 2);
    assert_int_equal(identity_take(one, QUOTA_IN_FLIGHT, 1, &after, &error), XOP_OK);
    /* Another policy: another identity, which has what it had before counted where it was. */
    policy = (struct policy){0};
    add_rule("others", "any", "use")->limits.most[QUOTA_CONNECTIONS] = 1;
    load();
    struct identity *moved = join(1, one);
    assert_ptr_not_equal(moved, one);
    assert_string_equal(moved->policy, "others");
    assert_int_equal(atomic_load(&one->used[QUOTA_CONNECTIONS]), 0);
    identity_give(after, QUOTA_IN_FLIGHT, 1);
    /* One that was there is never one too many. */
    assert_ptr_equal(join(1, moved), moved);
    assert_null(join(1, NULL));
    /* No policy at all: it stays where it was until its connection ends. */
    policy = (struct policy){0};
    add_rule("root", "uid:0", "admin");
    load();
    assert_null(join(1, moved));
    assert_int_equal(error.status, XOP_PERMISSION_DENIED);
    assert_int_equal(atomic_load(&moved->used[QUOTA_CONNECTIONS]), 1);
}

static void what_is_listed_is_what_is_used(void **state) {
    struct identity *counted;
    (void)state;
    add_rule("all", "any", "use")->limits.most[QUOTA_ATTACHED] = 10;
    load();
    struct identity *one = join(1, NULL), *two = join(2, NULL);
    assert_int_equal(identity_take(one, QUOTA_ATTACHED, 4, &counted, &error), XOP_OK);
    json_t *list = identity_list(&all, one);
    char *text = json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(list);
    assert_string_equal(text, "[{\"connections\":1,\"identity\":\"uid:1\",\"policy\":\"all\","
                              "\"priority\":7,\"quotas\":{\"attached\":{\"limit\":10,\"used\":4}},"
                              "\"rate\":0,\"role\":\"use\"}]");
    free(text);
    assert_int_equal(listed(), 2);
    identity_leave(&all, two);
    assert_int_equal(listed(), 1);
}

/* ---- Many threads ---- */

#define THREADS 4
#define JOINS 30
#define ROUNDS 2000
#define REQUESTS (THREADS * JOINS * ROUNDS)
#define MOST 5

static _Atomic uint64_t at_once, failures;

static void take_and_give(struct identity *identity) {
    struct xop_error why;
    struct identity *counted;
    if (identity_take(identity, QUOTA_IN_FLIGHT, 2, &counted, &why) == XOP_OK) {
        if (atomic_fetch_add(&at_once, 2) + 2 > MOST)
            atomic_fetch_add(&failures, 1);
        atomic_fetch_sub(&at_once, 2);
    }
    identity_give(counted, QUOTA_IN_FLIGHT, 2);
    identity_request(identity, 1, &why);
}

static void *use(void *arg) {
    const uid_t *uid = arg;
    for (int i = 0; i < JOINS; i++) {
        struct policy_peer peer = {.is_local = true, .uid = *uid};
        struct xop_error why;
        struct identity *counted, *identity = identity_join(&all, &peer, NULL, NULL, 1, &why);
        if (!identity) {
            atomic_fetch_add(&failures, 1);
            continue;
        }
        for (int j = 0; j < ROUNDS; j++)
            take_and_give(identity);
        enum xop_status taken = identity_take(identity, QUOTA_INBOX, 9, &counted, &why);
        identity_leave(&all, identity);
        if (taken == XOP_OK)
            identity_give(counted, QUOTA_INBOX, 9); /* after it left, as workers do */
    }
    return NULL;
}

static void threads_together_never_have_more_than_the_quota(void **state) {
    pthread_t threads[THREADS];
    uid_t uid = 1;
    (void)state;
    struct policy_rule *rule = add_rule("all", "any", "use");
    rule->limits.most[QUOTA_IN_FLIGHT] = MOST;
    rule->limits.rate = 1000;
    rule->limits.burst = REQUESTS / 2;
    rule->limits.most[QUOTA_INBOX] = 20;
    load();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, &uid), 0);
    for (int i = 0; i < 20; i++) {
        load();
        listed();
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&failures), 0);
    struct identity *one = join(1, NULL);
    assert_int_equal(atomic_load(&one->used[QUOTA_IN_FLIGHT]), 0);
    assert_int_equal(atomic_load(&one->used[QUOTA_INBOX]), 0);
    assert_int_equal(atomic_load(&one->used[QUOTA_CONNECTIONS]), 1);
    /* Of all that asked at one moment, those of the burst were let through. */
    assert_int_equal(atomic_load(&one->full_ns), 1 + (uint64_t)REQUESTS / 2 * SECOND / 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connections_of_one_user_are_one_identity, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(who_no_policy_lets_in_is_refused, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_token_is_ignored_where_there_are_none, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(a_quota_is_taken_and_given_back, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_bucket_of_requests_fills_with_time, open_all, close_all),
        cmocka_unit_test_setup_teardown(to_connect_anew_fills_no_bucket, open_all, close_all),
        cmocka_unit_test_setup_teardown(an_identity_ends_when_nothing_is_counted_for_it, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(changed_policies_hold_for_those_that_are_there, open_all,
                                        close_all),
        cmocka_unit_test_setup_teardown(what_is_listed_is_what_is_used, open_all, close_all),
        cmocka_unit_test_setup_teardown(threads_together_never_have_more_than_the_quota, open_all,
                                        close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
