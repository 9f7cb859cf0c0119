/*
 * y = x*x + b without a daemon: as a plain loop, with vectors, and with all processors. Each gives
 * the bits that square_bias gives. bench_crew's threads live from open to close and do nothing in
 * between; one thread at a time may run a crew.
 */
#ifndef XOPCTL_BENCH_PLAIN_H
#define XOPCTL_BENCH_PLAIN_H

#include <stdbool.h>
#include <stdint.h>

struct bench_arrays {
    const float *x, *b;
    float *y;
    int64_t n;
};

void bench_plain_scalar(const struct bench_arrays *arrays);
void bench_plain_vector(const struct bench_arrays *arrays);

/* As many threads as there are processors for this one; NULL where they cannot be had. */
struct bench_crew;
struct bench_crew *bench_crew_open(void);
void bench_crew_close(struct bench_crew *crew);
uint32_t bench_crew_size(const struct bench_crew *crew);
/* Each thread does its part with vectors. */
void bench_crew_run(struct bench_crew *crew, const struct bench_arrays *arrays);

#endif
