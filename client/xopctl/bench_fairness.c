/* What a client's requests take beside those of another that floods the daemon. */
#include "bench.h"

#include <string.h>

#define ROUNDS 4 /* in turns, so that whatever else slows the machine down slows both */

enum xop_status bench_fairness(const struct bench_load *load, uint32_t flood,
                               struct bench_fairness *fairness, struct xop_error *error) {
    static struct bench_figures figures;
    memset(fairness, 0, sizeof *fairness);
    for (int i = 0; i < 2 * ROUNDS && !bench_interrupted; i++) {
        struct bench_load one = *load;
        bool beside = i % 2 == 1;
        one.flood = beside ? flood : 0;
        one.seconds = load->seconds / ROUNDS;
        one.name = beside ? "beside a flood" : "alone";
        enum xop_status status = bench_measure(&one, &figures, error);
        if (status == XOP_CANCELLED)
            break;
        if (status != XOP_OK)
            return status;
        if (figures.errors > 0)
            return xop_fail(error, figures.error.status, "%s: %s", one.name, figures.error.message);
        histogram_merge(beside ? &fairness->beside : &fairness->alone, &figures.latency);
        fairness->flood_per_s += figures.flood_per_s / ROUNDS;
    }
    if (fairness->beside.total == 0) /* an interrupt came before there was something to compare */
        memset(fairness, 0, sizeof *fairness);
    return XOP_OK;
}

double bench_fairness_ratio(const struct bench_fairness *fairness) {
    double alone = histogram_at(&fairness->alone, 0.99);
    return alone > 0 ? histogram_at(&fairness->beside, 0.99) / alone : 0;
}
