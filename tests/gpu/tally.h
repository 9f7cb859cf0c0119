/*
 * Counting what held and what did not: a line for each class of checks, with the worst error seen,
 * and the first failures of each in full.
 */
#ifndef TESTS_GPU_TALLY_H
#define TESTS_GPU_TALLY_H

#include <stdarg.h>
#include <stdio.h>

#include <xop/types.h>

#define TALLY_SHOWN 5 /* failures of a class that are printed */

struct tally {
    char name[96];
    unsigned long checks, failures;
    double worst; /* ulps */
};

static unsigned tally_passed, tally_failed; /* classes */

static inline struct tally XOP_PRINTF(1, 2) tally_begin(const char *format, ...) {
    struct tally tally = {"", 0, 0, 0};
    va_list args;
    va_start(args, format);
    vsnprintf(tally.name, sizeof tally.name, format, args);
    va_end(args);
    return tally;
}

static inline bool XOP_PRINTF(3, 4)
    tally_check(struct tally *tally, bool holds, const char *format, ...) {
    va_list args;
    tally->checks++;
    if (holds)
        return true;
    if (tally->failures++ < TALLY_SHOWN) {
        printf("# %s: ", tally->name);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
    return false;
}

/* An error in ulps against its bound. */
static inline bool XOP_PRINTF(4, 5)
    tally_error(struct tally *tally, double error, double bound, const char *format, ...) {
    va_list args;
    tally->checks++;
    if (error > tally->worst)
        tally->worst = error;
    if (error <= bound)
        return true;
    if (tally->failures++ < TALLY_SHOWN) {
        printf("# %s: off by %g ulp: ", tally->name, error);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
    return false;
}

static inline void tally_end(const struct tally *tally) {
    bool good = tally->failures == 0 && tally->checks > 0;
    printf("%s %s: %lu checks", good ? "ok    " : "not ok", tally->name, tally->checks);
    if (tally->failures > 0)
        printf(", %lu failed", tally->failures);
    if (tally->worst > 0)
        printf(", worst error %.3g ulp", tally->worst);
    printf("\n");
    fflush(stdout);
    *(good ? &tally_passed : &tally_failed) += 1;
}

static inline int tally_total(void) {
    printf("%u passed, %u failed\n", tally_passed, tally_failed);
    return tally_failed == 0 ? 0 : 1;
}

#endif
