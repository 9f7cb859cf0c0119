/* daemon/front/policy.c and tokens.c: what policies may say, whom they fit, and which tokens count.
 */
#include "daemon/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SECRET "0123456789abcdef"
/* printf %s fedcba9876543210 | sha256sum */
#define HASHED "fedcba9876543210"
#define HASH "sha256:3465f6e6975baa864ca957f0914ecda9bf7eb601ac31ac20a5dc3d329279a843"

static struct config config;
static char text[8192], file[] = "/tmp/xopd-test-policy-XXXXXX";

static void write_file(const char *path, const char *bytes) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(bytes, out);
    assert_int_equal(fclose(out), 0);
}

static int make_files(void **state) {
    (void)state;
    int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int remove_files(void **state) {
    (void)state;
    return unlink(file);
}

/* Reads a configuration, with these tokens where some are given. */
static enum xop_status read_policy(const char *policies, const char *tokens,
                                   struct xop_error *error) {
    char path[] = "/tmp/xopd-test-policy-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (tokens)
        write_file(file, tokens);
    snprintf(text, sizeof text, "%s%s\n%s", tokens ? "[server]\ntokens = " : "", tokens ? file : "",
             policies);
    write_file(path, text);
    config_defaults(&config);
    enum xop_status status = config_read(&config, path, error);
    unlink(path);
    return status == XOP_OK ? config_finish(&config, error) : status;
}

static void reads(const char *policies, const char *tokens) {
    struct xop_error error = {0};
    if (read_policy(policies, tokens, &error) != XOP_OK)
        fail_msg("%s", error.message);
}

static void refuses(const char *policies, const char *tokens, const char *why) {
    struct xop_error error = {0};
    assert_int_not_equal(read_policy(policies, tokens, &error), XOP_OK);
    if (!strstr(error.message, why))
        fail_msg("\"%s\" is not in \"%s\"", why, error.message);
}

/* Which policy fits, and as whom. */
static void is(const struct policy_peer *peer, const char *policy, const char *identity) {
    char found[POLICY_IDENTITY];
    const struct policy_rule *rule = policy_find(&config.policy, peer, found);
    assert_string_equal(rule ? rule->name : "(none)", policy);
    assert_string_equal(found, identity);
}

static void without_any_everybody_may_use_and_root_and_its_own_user_administer(void **state) {
    char self[32];
    (void)state;
    reads("", NULL);
    assert_true(config.policy.is_default);
    snprintf(self, sizeof self, "uid:%u", geteuid());
    is(&(struct policy_peer){.is_local = true, .uid = 0}, "administrators", "uid:0");
    is(&(struct policy_peer){.is_local = true, .uid = geteuid()}, "administrators", self);
    is(&(struct policy_peer){.is_local = true, .uid = 4242}, "everybody", "uid:4242");
    is(&(struct policy_peer){.address = "10.0.0.1"}, "everybody", "address:10.0.0.1");
    /* An address is not a user, whatever its fields hold. */
    is(&(struct policy_peer){.uid = 0, .address = "10.0.0.1"}, "everybody", "address:10.0.0.1");
}

static void keys_of_a_policy_are_its_own(void **state) {
    (void)state;
    reads("[policy ml]\nmatch = uid:1000\nrole = use\nconnections = 3\nin_flight = 100\n"
          "inbox = 64M\nresident = 1G\nattached = 2G\nrate = 500\nburst = 50\npriority = -2\n"
          "[quota]\nresident = 5G\n"
          "[policy rest]\nmatch = any\nrole = none\n",
          NULL);
    assert_false(config.policy.is_default);
    const struct policy_rule *rule = &config.policy.rules[0];
    assert_string_equal(rule->name, "ml");
    assert_int_equal(rule->role, POLICY_USE);
    assert_int_equal(rule->limits.most[QUOTA_CONNECTIONS], 3);
    assert_int_equal(rule->limits.most[QUOTA_IN_FLIGHT], 100);
    assert_int_equal(rule->limits.most[QUOTA_INBOX], 64 << 20);
    assert_int_equal(rule->limits.most[QUOTA_RESIDENT], 1 << 30);
    assert_int_equal(rule->limits.most[QUOTA_ATTACHED], UINT64_C(2) << 30);
    assert_int_equal(rule->limits.rate, 500);
    assert_int_equal(rule->limits.burst, 50);
    assert_int_equal(rule->limits.priority, -2);
    rule++;
    assert_int_equal(rule->role, POLICY_NONE);
    assert_int_equal(rule->limits.most[QUOTA_RESIDENT], 0);
    assert_int_equal(rule->limits.priority, 7);
    assert_int_equal(config.quota_resident_bytes, UINT64_C(5) << 30); /* a connection's */
}

static void the_first_policy_that_fits_counts(void **state) {
    const gid_t groups[] = {7, 8, 9};
    (void)state;
    reads("[policy boss]\nmatch = uid:1\nrole = admin\n"
          "[policy team]\nmatch = gid:8\nrole = use\n"
          "[policy known]\nmatch = uid:2\nrole = use\n"
          "[policy boss]\nmatch = uid:3\n",
          NULL);
    is(&(struct policy_peer){.is_local = true, .uid = 1, .gid = 8}, "boss", "uid:1");
    is(&(struct policy_peer){.is_local = true, .uid = 2, .gid = 8}, "team", "uid:2");
    is(&(struct policy_peer){.is_local = true, .uid = 2}, "known", "uid:2");
    is(&(struct policy_peer){.is_local = true, .uid = 5, .groups = groups, .ngroups = 3}, "team",
       "uid:5");
    is(&(struct policy_peer){.is_local = true, .uid = 5, .groups = groups, .ngroups = 1}, "(none)",
       "uid:5");
    /* A section may go on further down, in the place that it had. */
    is(&(struct policy_peer){.is_local = true, .uid = 3, .gid = 8}, "boss", "uid:3");
    is(&(struct policy_peer){.uid = 1, .address = "::1"}, "(none)", "address:::1");
}

static void certificates_fit_by_subject_part_and_alternative_name(void **state) {
    (void)state;
    reads("[policy whole]\nmatch = cert:CN=alice,O=lab\nrole = use\n"
          "[policy part]\nmatch = cert:O=lab\nrole = use\n"
          "[policy names]\nmatch = san:URI:spiffe://lab/ci\nmatch = san:DNS:ci.lab\nrole = use\n",
          NULL);
    is(&(struct policy_peer){.subject = "CN=alice,O=lab"}, "whole", "cert:CN=alice,O=lab");
    is(&(struct policy_peer){.subject = "CN=bob,O=lab"}, "part", "cert:CN=bob,O=lab");
    is(&(struct policy_peer){.subject = "CN=x\\,O=lab"}, "(none)", "cert:CN=x\\,O=lab");
    is(&(struct policy_peer){.subject = "CN=bob,O=labs"}, "(none)", "cert:CN=bob,O=labs");
    is(&(struct policy_peer){.subject = "", .names = "DNS:a\nURI:spiffe://lab/ci\n"}, "names",
       "san:URI:spiffe://lab/ci");
    is(&(struct policy_peer){.subject = "CN=c", .names = "DNS:ci.lab\n"}, "names",
       "san:DNS:ci.lab");
    is(&(struct policy_peer){.subject = "CN=c", .names = "DNS:ci.lab.evil\nDNS:ci.la\n"}, "(none)",
       "cert:CN=c");
}

static void who_has_shown_nothing_is_anonymous(void **state) {
    (void)state;
    reads("[policy nobody]\nmatch = anonymous\nrole = none\n"
          "[policy all]\nmatch = any\nrole = use\n",
          NULL);
    is(&(struct policy_peer){.address = "10.0.0.1"}, "nobody", "address:10.0.0.1");
    is(&(struct policy_peer){.subject = "", .address = "10.0.0.1"}, "all", "address:10.0.0.1");
    is(&(struct policy_peer){.token = "ci", .address = "10.0.0.1"}, "all", "token:ci");
    is(&(struct policy_peer){.is_local = true, .uid = 6}, "all", "uid:6");
}

static void tokens_are_known_by_their_digests(void **state) {
    unsigned char digest[POLICY_DIGEST];
    const char *tokens = "# a comment\n\nci  " SECRET "\n\tbuild " HASH "  \r\n";
    (void)state;
    reads("[policy robots]\nmatch = token:ci\nmatch = token:build\nrole = use\n", tokens);
    policy_digest(SECRET, digest);
    assert_string_equal(policy_token_name(&config.policy, digest), "ci");
    policy_digest(HASHED, digest);
    assert_string_equal(policy_token_name(&config.policy, digest), "build");
    policy_digest("0123456789abcdeF", digest);
    assert_null(policy_token_name(&config.policy, digest));
    /* The digest is not the token. */
    policy_digest(HASH, digest);
    assert_null(policy_token_name(&config.policy, digest));
    is(&(struct policy_peer){.token = "ci", .is_local = true, .uid = 1}, "robots", "token:ci");
    is(&(struct policy_peer){.token = "other", .is_local = true, .uid = 1}, "(none)",
       "token:other");
    assert_null(memmem(&config, sizeof config, SECRET, strlen(SECRET)));
}

static void a_wrong_policy_is_named_with_its_line(void **state) {
    (void)state;
    refuses("[policy a]\nmatch = uid:x\n", NULL, ":3: policy a.match: \"x\" is no number");
    refuses("[policy a]\nmatch = uid:4294967295\n", NULL, "is no number");
    refuses("[policy a]\nmatch = user:no-such-user\n", NULL, "there is no user");
    refuses("[policy a]\nmatch = group:no-such-group\n", NULL, "there is no group");
    refuses("[policy a]\nmatch = somebody\n", NULL, "anonymous or any is allowed");
    refuses("[policy a]\nmatch = any:thing\n", NULL, "anonymous or any is allowed");
    refuses("[policy a]\nmatch = token:\n", NULL, "anonymous or any is allowed");
    refuses("[policy a]\nmatch = san:host\n", NULL, "san:DNS:NAME");
    refuses("[policy a]\nmatch = san:DNS:\n", NULL, "san:DNS:NAME");
    refuses("[policy a]\nrole = king\n", NULL, "use, admin or none is allowed");
    refuses("[policy a]\nrole = use\nrole = use\n", NULL, ":4: policy a.role is given twice");
    refuses("[policy a]\ncores = 3\n", NULL, ":3: policy a.cores is no key");
    refuses("[policy a]\nlisten = unix:/tmp/x\n", NULL, "policy a.listen is no key");
    refuses("[policy a]\npriority = 8\n", NULL, "a number from -8 to 7 is allowed");
    refuses("[policy a]\nrate = -1\n", NULL, "policy a.rate is \"-1\"");
    refuses("[policy a]\ninbox = 1Q\n", NULL, "policy a.inbox is \"1Q\"");
    refuses("[policy ]\nrole = use\n", NULL, "a policy's name has");
    refuses("[policy a b]\nrole = use\n", NULL, "a policy's name has");
    refuses("[policy a123456789b123456789c123456789d123456789]\nrole = use\n", NULL,
            "a policy's name has");
    refuses("[policy a]\nrole = use\n", NULL, "[policy a] has no match");
    refuses("[policy a]\nmatch = any\n", NULL, "[policy a] has no role");
    refuses("[policy a]\nmatch = any\nrole = use\nmatch = token:ci\n", NULL,
            "there is no token \"ci\"");
    refuses("", "ci " SECRET "\n", "no [policy NAME] says what they are for");
}

static void more_policies_than_there_may_be_are_refused(void **state) {
    static char many[64 * (POLICY_MATCHES + 2)];
    size_t at = 0;
    (void)state;
    for (unsigned i = 0; i <= POLICY_RULES; i++)
        at += (size_t)sprintf(many + at, "[policy p%u]\nrole = use\n", i);
    refuses(many, NULL, "more than 64 policies");
    at = (size_t)sprintf(many, "[policy p]\nrole = use\n");
    for (unsigned i = 0; i <= POLICY_MATCHES; i++)
        at += (size_t)sprintf(many + at, "match = uid:%u\n", i);
    refuses(many, NULL, "256 matches at most");
}

static void a_wrong_line_of_tokens_is_named(void **state) {
    static char much[POLICY_TOKENS * 64 + 8192];
    const char *robots = "[policy robots]\nmatch = any\nrole = use\n";
    size_t at = 0;
    (void)state;
    refuses(robots, "ci short\n", ":1: a token has 16 to 4096 bytes");
    refuses(robots, "ci\n", ":1: a name, a blank and a token are expected");
    refuses(robots, "ci " SECRET " more\n", ":1: a name, a blank and a token are expected");
    refuses(robots, "ci " SECRET "\nci " HASHED "\n", ":2: the name is given twice");
    refuses(robots, "ci " SECRET "\nbuild " SECRET "\n", ":2: the token is another's already");
    refuses(robots, "c/i " SECRET "\n", ":1: a token's name has");
    refuses(robots, "ci sha256:1234567890\n", ":1: sha256: is followed by 64");
    refuses(robots, "ci sha256:zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\n",
            ":1: sha256: is followed by 64");
    for (unsigned i = 0; i <= POLICY_TOKENS; i++)
        at += (size_t)sprintf(much + at, "n%u 0123456789abcdef%u\n", i, i);
    refuses(robots, much, ":257: there are more than 256 tokens");
    at = (size_t)sprintf(much, "ci ");
    memset(much + at, 'x', 8000);
    strcpy(much + at + 8000, "\n");
    refuses(robots, much, ":1: the line is too long");
}

static void a_file_of_tokens_that_others_can_read_is_refused(void **state) {
    const char *robots = "[policy robots]\nmatch = token:ci\nrole = use\n";
    (void)state;
    assert_int_equal(chmod(file, 0644), 0);
    refuses(robots, "ci " SECRET "\n", "can be read or changed by others: chmod o= it");
    assert_int_equal(chmod(file, 0660), 0);
    refuses(robots, "ci " SECRET "\n", "can be changed by its group: chmod g-w it");
    assert_int_equal(chmod(file, 0640), 0);
    reads(robots, "ci " SECRET "\n");
    assert_int_equal(chmod(file, 0600), 0);
    refuses("[server]\ntokens = /no/such/file\n[policy a]\nmatch = any\nrole = use\n", NULL,
            "server.tokens: /no/such/file No such file");
    refuses("[server]\ntokens = /dev/null\n[policy a]\nmatch = any\nrole = use\n", NULL,
            "is no regular file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_any_everybody_may_use_and_root_and_its_own_user_administer),
        cmocka_unit_test(keys_of_a_policy_are_its_own),
        cmocka_unit_test(the_first_policy_that_fits_counts),
        cmocka_unit_test(certificates_fit_by_subject_part_and_alternative_name),
        cmocka_unit_test(who_has_shown_nothing_is_anonymous),
        cmocka_unit_test(tokens_are_known_by_their_digests),
        cmocka_unit_test(a_wrong_policy_is_named_with_its_line),
        cmocka_unit_test(more_policies_than_there_may_be_are_refused),
        cmocka_unit_test(a_wrong_line_of_tokens_is_named),
        cmocka_unit_test(a_file_of_tokens_that_others_can_read_is_refused),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
