/* The verbs ping and stats. */
#include "lookup.h"
#include "session.h"
#include "watch.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double number(json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* ---- ping ---- */

static int parse_json_only(const struct verb *verb, struct session *session, int argc,
                           char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 'j')
            return session_usage(verb, "wrong usage");
        session->json = true;
    }
    return optind < argc ? session_usage(verb, "unexpected: %s", argv[optind]) : 0;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int run_ping(struct session *session, int argc, char **argv) {
    int status = parse_json_only(&verb_ping, session, argc, argv);
    if (status || !session_connect(session, &status))
        return status;
    uint64_t start = now_ns();
    json_t *document = session_ping(session, &status);
    double us = (double)(now_ns() - start) / 1000;
    if (!document)
        return status;
    bool ready = json_is_true(json_object_get(document, "ready"));
    if (session->json) {
        json_object_set_new(document, "round_trip_us", json_real(us));
        status = session_print_json(document);
        return status ? status : ready ? 0 : session_exit(XOP_UNAVAILABLE);
    }
    if (ready)
        printf("xopd %s at %s: %s on %s (%s), generation %.0f, %.0f us\n",
               lookup_text(document, "version"), xop_client_address(session->client),
               lookup_text(document, "backend"), lookup_text(document, "device"),
               lookup_text(document, "runtime"), number(document, "generation"), us);
    else
        printf("xopd %s at %s has no worker%s%s\n", lookup_text(document, "version"),
               xop_client_address(session->client),
               *lookup_text(document, "reason") ? ": " : " yet", lookup_text(document, "reason"));
    if (*lookup_text(document, "fallback_reason"))
        printf("no GPU is used: %s\n", lookup_text(document, "fallback_reason"));
    json_decref(document);
    return ready ? 0 : session_exit(XOP_UNAVAILABLE);
}

const struct verb verb_ping = {
    .name = "ping",
    .usage = "[--json]",
    .summary = "say whether the daemon answers and what it runs on",
    .details =
        "  --json   {version, backend, device, runtime, fallback_reason, generation, uptime_s,\n"
        "           ready, reason, round_trip_us}\n\n"
        "The exit status is 69 where the daemon is not there or has no worker.\n",
    .run = run_ping,
};

/* ---- stats ---- */

static const char *human(double bytes, char *out, size_t capacity) {
    live_format(LIVE_BYTES, bytes, out, capacity);
    return out;
}

static void print_server(json_t *server) {
    char a[32], b[32], c[32], d[32];
    printf("xopd %s, up %.0f s, %s on %s (%s)\n", lookup_text(server, "version"),
           number(server, "uptime_s"), lookup_text(server, "backend"),
           lookup_text(server, "device"), lookup_text(server, "runtime"));
    if (*lookup_text(server, "fallback_reason"))
        printf("no GPU is used: %s\n", lookup_text(server, "fallback_reason"));
    printf("generation %.0f, %.0f restarts, %.0f connections, %.0f requests in flight\n",
           number(server, "generation"), number(server, "restarts"), number(server, "connections"),
           number(server, "in_flight"));
    printf("memory %s of %s free, inbox %s of %s used\n",
           human(number(server, "memory_free"), a, sizeof a),
           human(number(server, "memory_total"), b, sizeof b),
           human(number(server, "inbox_used"), c, sizeof c),
           human(number(server, "inbox_bytes"), d, sizeof d));
    printf("resident tensors %s of %s, clients' memory attached %s\n",
           human(number(server, "resident_bytes"), a, sizeof a),
           human(number(server, "resident_limit"), b, sizeof b),
           human(number(server, "attached_bytes"), c, sizeof c));
}

static void print_operators(json_t *list) {
    size_t i;
    json_t *op;
    char in[32], out[32];
    if (json_array_size(list) > 0)
        printf("\n%-24s %-8s %10s %7s %10s %10s %8s %6s %21s %21s\n", "operator", "pass",
               "requests", "errors", "in", "out", "batches", "mean", "queue p50/p99 us",
               "run p50/p99 us");
    json_array_foreach(list, i, op) {
        json_t *queue = json_object_get(op, "queue_us"), *ran = json_object_get(op, "run_us");
        printf("%-24s %-8s %10.0f %7.0f %10s %10s %8.0f %6.1f %10.1f %10.1f %10.1f %10.1f\n",
               lookup_text(op, "name"), lookup_text(op, "pass"), number(op, "requests"),
               number(op, "errors"), human(number(op, "bytes_in"), in, sizeof in),
               human(number(op, "bytes_out"), out, sizeof out), number(op, "batches"),
               number(op, "batch_mean"), number(queue, "p50"), number(queue, "p99"),
               number(ran, "p50"), number(ran, "p99"));
    }
}

static void print_clients(json_t *list) {
    size_t i;
    json_t *client;
    char in[32], out[32], resident[32], attached[32];
    printf("\n%-6s %-36s %-20s %10s %7s %9s %10s %10s %9s %10s %10s\n", "client", "peer", "agent",
           "requests", "errors", "in flight", "in", "out", "residents", "resident", "attached");
    json_array_foreach(list, i, client)
        printf("%-6.0f %-36s %-20s %10.0f %7.0f %9.0f %10s %10s %9.0f %10s %10s\n",
               number(client, "id"), lookup_text(client, "peer"), lookup_text(client, "agent"),
               number(client, "requests"), number(client, "errors"), number(client, "in_flight"),
               human(number(client, "bytes_in"), in, sizeof in),
               human(number(client, "bytes_out"), out, sizeof out), number(client, "residents"),
               human(number(client, "resident_bytes"), resident, sizeof resident),
               human(number(client, "attached_bytes"), attached, sizeof attached));
}

/* "used of limit", or "-" where there is no limit. */
static const char *quota(json_t *identity, const char *key, bool bytes, char out[static 48]) {
    char used[32], limit[32];
    json_t *of = json_object_get(json_object_get(identity, "quotas"), key);
    if (!of)
        return "-";
    if (bytes)
        snprintf(out, 48, "%.20s/%.20s", human(number(of, "used"), used, sizeof used),
                 human(number(of, "limit"), limit, sizeof limit));
    else
        snprintf(out, 48, "%.0f/%.0f", number(of, "used"), number(of, "limit"));
    return out;
}

static void print_identities(json_t *list) {
    size_t i;
    json_t *identity;
    char flight[48], inbox[48], resident[48], attached[48];
    printf("\n%-36s %-16s %-6s %11s %12s %22s %22s %22s\n", "identity", "policy", "role",
           "connections", "in flight", "inbox", "resident", "attached");
    json_array_foreach(list, i, identity)
        printf("%-36s %-16s %-6s %11.0f %12s %22s %22s %22s\n", lookup_text(identity, "identity"),
               lookup_text(identity, "policy"), lookup_text(identity, "role"),
               number(identity, "connections"), quota(identity, "in_flight", false, flight),
               quota(identity, "inbox", true, inbox), quota(identity, "resident", true, resident),
               quota(identity, "attached", true, attached));
}

static int show_stats(struct session *session) {
    struct xop_result *result;
    int status = 0;
    xop_stats(session->client, &result);
    json_t *document = session_document(session, result, &status);
    if (!document)
        return status;
    if (session->json)
        return session_print_json(document);
    print_server(json_object_get(document, "server"));
    print_operators(json_object_get(document, "operators"));
    print_clients(json_object_get(document, "clients"));
    print_identities(json_object_get(document, "identities"));
    json_decref(document);
    return session_finish_output();
}

static int run_stats(struct session *session, int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"watch", required_argument, NULL, 'w'},
                                            {"count", required_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    struct watch watch;
    bool watches = false;
    int c, status = 0;
    watch_init(&watch, session);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == '?')
            return session_usage(&verb_stats, "wrong usage");
        if (c == 'w' && !watch_seconds(optarg, &watch.seconds))
            return session_usage(&verb_stats, "--watch: %s", WATCH_USAGE);
        if (c == 'n' && !session_count(optarg, 1, UINT32_MAX, &watch.count))
            return session_usage(&verb_stats, "--count: a number from 1 on is expected");
        watches |= c == 'w';
        session->json |= c == 'j';
    }
    if (optind < argc)
        return session_usage(&verb_stats, "unexpected: %s", argv[optind]);
    if (watch.count && !watches)
        return session_usage(&verb_stats, "--count goes with --watch");
    if (watches)
        return watch_run(&watch);
    return session_connect(session, &status) ? show_stats(session) : status;
}

const struct verb verb_stats = {
    .name = "stats",
    .usage = "[--watch SECONDS [--count N]] [--json]",
    .summary = "show requests, batches, times and clients",
    .details =
        "  --watch SECONDS   what happens in each such interval, with rates a second; see top\n"
        "  --count N         end after so many intervals\n"
        "  --json            {server, totals, operators, clients, identities}, as\n"
        "                    docs/protocol.md says; with --watch one document a line, which\n"
        "                    has rates as well\n",
    .run = run_stats,
};
