/* The verb top. */
#include "watch.h"

#include <getopt.h>
#include <string.h>

/* Which columns there are, where one is named that there is not. */
static int no_column(const struct live_view *view, const char *key) {
    char names[300] = "";
    for (size_t i = 0; i < view->ncolumns; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 view->columns[i].key);
    return session_usage(&verb_top, "%s have no column \"%s\", but %s", view->list, key, names);
}

static int run_top(struct session *session, int argc, char **argv) {
    static const struct option options[] = {
        {"by", required_argument, NULL, 'b'},       {"sort", required_argument, NULL, 's'},
        {"interval", required_argument, NULL, 'i'}, {"count", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},           {NULL, 0, NULL, 0}};
    struct watch watch;
    const char *by = live_operators.list, *sort = NULL;
    int c;
    watch_init(&watch, session);
    watch.choose = true;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'b': by = optarg; break;
        case 's': sort = optarg; break;
        case 'i':
            if (!watch_seconds(optarg, &watch.seconds))
                return session_usage(&verb_top, "--interval: %s", WATCH_USAGE);
            break;
        case 'n':
            if (!session_count(optarg, 1, UINT32_MAX, &watch.count))
                return session_usage(&verb_top, "--count: a number from 1 on is expected");
            break;
        case 'j': session->json = true; break;
        default: return session_usage(&verb_top, "wrong usage");
        }
    }
    if (optind < argc)
        return session_usage(&verb_top, "unexpected: %s", argv[optind]);
    struct watch_table *chosen = NULL;
    for (int i = 0; i < WATCH_VIEWS; i++) {
        watch.tables[i].shown = strcmp(by, watch.tables[i].view->list) == 0;
        if (watch.tables[i].shown)
            chosen = &watch.tables[i];
    }
    if (!chosen)
        return session_usage(&verb_top, "--by takes operators or clients, not \"%s\"", by);
    if (sort)
        chosen->sort = live_column(chosen->view, sort);
    if (chosen->sort == chosen->view->ncolumns)
        return no_column(chosen->view, sort);
    return watch_run(&watch);
}

const struct verb verb_top = {
    .name = "top",
    .usage = "[--by operators|clients] [--sort COLUMN] [--interval SECONDS] [--count N] [--json]",
    .summary = "show what keeps the daemon busy, operator by operator or client by client",
    .details =
        "  --by         operators or clients\n"
        "  --sort       the column to sort by, as JSON calls it (requests_per_s)\n"
        "  --interval   seconds between two readings (1)\n"
        "  --count      end after so many intervals\n"
        "  --json       one document a line: that of stats, and rates: {interval_s, operators:\n"
        "               [{name, pass, requests_per_s, errors_per_s, bytes_in_per_s,\n"
        "               bytes_out_per_s, batch_mean, queue_p50_us, queue_p99_us, run_p50_us,\n"
        "               run_p99_us}], clients: [{id, identity, agent, requests_per_s,\n"
        "               errors_per_s, in_flight, bytes_in_per_s, bytes_out_per_s,\n"
        "               resident_bytes, attached_bytes, peer}]}\n\n"
        "On a terminal: q quits, o and c show operators and clients, < and > (or arrows) choose\n"
        "the column to sort by, r reverses.\n",
    .run = run_top,
};
