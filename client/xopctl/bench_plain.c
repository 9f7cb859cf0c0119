#include "bench_plain.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

/* The plain loop must not become a vectorised one, and neither may multiply and add with one
 * rounding, which square_bias does not do. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define PLAIN_LOOP _Pragma("clang loop vectorize(disable) interleave(disable) unroll(disable)")
#else
#pragma GCC optimize("no-tree-vectorize", "no-tree-slp-vectorize", "fp-contract=off")
#define PLAIN_LOOP
#endif

void bench_plain_scalar(const struct bench_arrays *arrays) {
    const float *x = arrays->x, *b = arrays->b;
    float *y = arrays->y;
    int64_t n = arrays->n;
    PLAIN_LOOP
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * x[i] + b[i];
}

/* ---- Vectors ---- */

#define VECTOR_LOOP(name, bytes, target)                                                           \
    target static void name(const struct bench_arrays *arrays) {                                   \
        typedef float lanes __attribute__((vector_size(bytes), aligned(4), may_alias));            \
        const int64_t width = bytes / (int64_t)sizeof(float);                                      \
        int64_t i = 0;                                                                             \
        for (; i <= arrays->n - width; i += width) {                                               \
            lanes x = *(const lanes *)(arrays->x + i), b = *(const lanes *)(arrays->b + i);        \
            *(lanes *)(arrays->y + i) = x * x + b;                                                 \
        }                                                                                          \
        for (; i < arrays->n; i++)                                                                 \
            arrays->y[i] = arrays->x[i] * arrays->x[i] + arrays->b[i];                             \
    }

VECTOR_LOOP(loop16, 16, )
#ifdef __x86_64__
VECTOR_LOOP(loop32, 32, __attribute__((target("avx2"))))
VECTOR_LOOP(loop64, 64, __attribute__((target("avx512f"))))
#endif

void bench_plain_vector(const struct bench_arrays *arrays) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        loop64(arrays);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        loop32(arrays);
        return;
    }
#endif
    loop16(arrays);
}

/* ---- All processors ---- */

struct member {
    struct bench_crew *crew;
    uint32_t index;
    pthread_t thread;
};

/* The caller is the first member. */
struct bench_crew {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    uint32_t size; /* once it is known; 0 before */
    bool is_over;
    struct bench_arrays arrays;
    struct member members[];
};

static void do_part(const struct bench_crew *crew, uint32_t index) {
    const struct bench_arrays *all = &crew->arrays;
    int64_t each = (all->n / crew->size + 15) / 16 * 16, from = each * index;
    int64_t n = from >= all->n                                    ? 0
                : index == crew->size - 1 || from + each > all->n ? all->n - from
                                                                  : each;
    struct bench_arrays part = {all->x + from, all->b + from, all->y + from, n};
    if (n > 0)
        bench_plain_vector(&part);
}

static void *run_member(void *arg) {
    struct member *member = arg;
    struct bench_crew *crew = member->crew;
    pthread_mutex_lock(&crew->lock);
    while (crew->size == 0)
        pthread_cond_wait(&crew->opened, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    for (;;) {
        pthread_barrier_wait(&crew->barrier);
        if (crew->is_over)
            return NULL;
        do_part(crew, member->index);
        pthread_barrier_wait(&crew->barrier);
    }
}

struct bench_crew *bench_crew_open(void) {
    cpu_set_t set;
    uint32_t wanted = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    struct bench_crew *crew = calloc(1, sizeof *crew + wanted * sizeof(struct member));
    uint32_t size = 1;
    if (!crew)
        return NULL;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->opened, NULL);
    for (; size < wanted; size++) {
        crew->members[size].crew = crew;
        crew->members[size].index = size;
        if (pthread_create(&crew->members[size].thread, NULL, run_member, &crew->members[size]))
            break;
    }
    pthread_barrier_init(&crew->barrier, NULL, size);
    pthread_mutex_lock(&crew->lock);
    crew->size = size;
    pthread_cond_broadcast(&crew->opened);
    pthread_mutex_unlock(&crew->lock);
    return crew;
}

void bench_crew_close(struct bench_crew *crew) {
    if (!crew)
        return;
    crew->is_over = true;
    pthread_barrier_wait(&crew->barrier);
    for (uint32_t i = 1; i < crew->size; i++)
        pthread_join(crew->members[i].thread, NULL);
    pthread_barrier_destroy(&crew->barrier);
    pthread_cond_destroy(&crew->opened);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

uint32_t bench_crew_size(const struct bench_crew *crew) { return crew->size; }

void bench_crew_run(struct bench_crew *crew, const struct bench_arrays *arrays) {
    crew->arrays = *arrays;
    pthread_barrier_wait(&crew->barrier);
    do_part(crew, 0);
    pthread_barrier_wait(&crew->barrier);
}
