#include "kernels/cpu/probe.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 31
#define LEAST_RUNS 3
#define ENOUGH_NS UINT64_C(200000000) /* after which no further run begins */
#define MOST_BYTES (UINT64_C(1) << 30)
#define ALIGNMENT 4096u
/* Words that are worth handing to another thread. */
#define GRAIN (INT64_C(32) << 10)

struct job {
    const uint64_t *in;
    uint64_t *out, *scratch;
    int64_t words_in, words_out;
    _Atomic uint64_t sum; /* of what was read, so that it has to be */
};

static void read_piece(void *arg, int64_t begin, int64_t end) {
    struct job *job = arg;
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; i++)
        sum += job->in[i];
    atomic_fetch_add_explicit(&job->sum, sum, memory_order_relaxed);
}

static void write_piece(void *arg, int64_t begin, int64_t end) {
    struct job *job = arg;
    memset(job->out + begin, (int)(job->sum & 0xff), (size_t)(end - begin) * sizeof *job->out);
}

static void run_direct(struct pool *pool, struct job *job) {
    pool_parallel(pool, job->words_in, GRAIN, read_piece, job);
    pool_parallel(pool, job->words_out, GRAIN, write_piece, job);
}

/* The barriers keep the compiler from leaving out what nobody reads. */
static void run_copy(struct pool *pool, struct job *job) {
    (void)pool;
    memcpy(job->scratch, job->in, (size_t)job->words_in * sizeof *job->in);
    __asm__ volatile("" ::: "memory");
    memcpy(job->out, job->scratch, (size_t)job->words_out * sizeof *job->out);
    __asm__ volatile("" ::: "memory");
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median; the first run is left out. */
static uint64_t measure(void (*run)(struct pool *pool, struct job *job), struct pool *pool,
                        struct job *job) {
    uint64_t took[RUNS], begin = now_ns(), since = begin;
    size_t n = 0;

    run(pool, job);
    while (n < RUNS && (n < LEAST_RUNS || since - begin < ENOUGH_NS)) {
        uint64_t start = now_ns();
        run(pool, job);
        since = now_ns();
        took[n++] = since - start;
    }
    qsort(took, n, sizeof *took, compare);
    return took[n / 2];
}

/* Filled, so that its pages are there. */
static void *allocate(int64_t words) {
    size_t bytes = (size_t)words * sizeof(uint64_t);
    void *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (memory)
        memset(memory, 1, bytes);
    return memory;
}

enum xop_status probe_cpu(struct pool *pool, uint64_t bytes_in, uint64_t bytes_out,
                          struct xop_probe *probe, struct xop_error *error) {
    struct job job = {.sum = 0};
    enum xop_status status = XOP_OK;
    void *in, *out, *scratch;

    memset(probe, 0, sizeof *probe);
    if (bytes_in > MOST_BYTES || bytes_out > MOST_BYTES)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                        "a probe moves up to %llu bytes either way, not %llu and %llu",
                        (unsigned long long)MOST_BYTES, (unsigned long long)bytes_in,
                        (unsigned long long)bytes_out);
    job.words_in = (int64_t)((bytes_in + 7) / 8);
    job.words_out = (int64_t)((bytes_out + 7) / 8);
    in = allocate(job.words_in);
    out = allocate(job.words_out);
    scratch = allocate(job.words_in > job.words_out ? job.words_in : job.words_out);
    job.in = in;
    job.out = out;
    job.scratch = scratch;
    if (!in || !out || !scratch) {
        status =
            xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for a probe of %llu and %llu bytes",
                     (unsigned long long)bytes_in, (unsigned long long)bytes_out);
    } else if (bytes_in + bytes_out > 0) {
        probe->direct_ns = measure(run_direct, pool, &job);
        probe->copy_ns = measure(run_copy, pool, &job);
    }
    free(in);
    free(out);
    free(scratch);
    return status;
}
