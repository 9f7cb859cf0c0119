/*
 * The compute threads of the CPU backend. They take two kinds of work: tasks, each run whole by one
 * thread in the order given, and loops, which a running task (or any other thread) spreads over
 * the threads that are free and its own. A thread that is free helps with a loop before it begins a
 * task, since that finishes what others wait for. Threads sleep when there is nothing to do.
 *
 * pool_task and pool_parallel may be called from any thread; open and close by the owner only.
 */
#ifndef KERNELS_CPU_POOL_H
#define KERNELS_CPU_POOL_H

#include <xop/types.h>

struct pool;

/* Belongs to the caller, who keeps it until run was called. */
struct pool_task {
    void (*run)(struct pool_task *task);
    struct pool_task *next; /* the pool's */
};

enum xop_status pool_open(struct pool **pool, uint32_t threads, struct xop_error *error);

/* Tasks that have not begun are dropped, loops are cut short after the pieces that run now; returns
 * when every thread has ended. NULL is allowed. */
void pool_close(struct pool *pool);

void pool_add(struct pool *pool, struct pool_task *task);

/* Calls run(arg, k*grain, min(n, (k+1)*grain)) for every k, on this and other threads, and returns
 * when all have returned. May be called from inside run. */
void pool_parallel(struct pool *pool, int64_t n, int64_t grain,
                   void (*run)(void *arg, int64_t begin, int64_t end), void *arg);

/* The same without other threads. */
void pool_serial(int64_t n, int64_t grain, void (*run)(void *arg, int64_t begin, int64_t end),
                 void *arg);

uint32_t pool_threads(const struct pool *pool);

#endif
