#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A loop in progress. It lives on its caller's stack: the caller leaves only when it is out of the
 * pool's list and no thread helps with it any more. */
struct loop {
    struct loop *next;
    void (*run)(void *arg, int64_t begin, int64_t end);
    void *arg;
    int64_t n, grain, pieces;
    _Atomic int64_t taken; /* pieces that a thread took */
    uint32_t helpers;      /* guarded by the pool's lock */
    pthread_cond_t left;   /* the last helper left */
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* there is a task or a loop, or the end has come */
    struct loop *loops;
    struct pool_task *first, **last;
    uint32_t idle;
    atomic_bool closing;
    uint32_t nthreads;
    pthread_t thread[];
};

static void run_pieces(struct pool *pool, struct loop *loop) {
    while (!atomic_load_explicit(&pool->closing, memory_order_relaxed)) {
        int64_t k = atomic_fetch_add_explicit(&loop->taken, 1, memory_order_relaxed);
        int64_t begin, end;
        if (k >= loop->pieces)
            return;
        begin = k * loop->grain;
        end = loop->n - begin < loop->grain ? loop->n : begin + loop->grain;
        loop->run(loop->arg, begin, end);
    }
}

/* The functions below are called with the lock held. */

static void unlink_loop(struct pool *pool, const struct loop *loop) {
    for (struct loop **at = &pool->loops; *at; at = &(*at)->next)
        if (*at == loop) {
            *at = loop->next;
            return;
        }
}

static void help(struct pool *pool, struct loop *loop) {
    loop->helpers++;
    pthread_mutex_unlock(&pool->lock);
    run_pieces(pool, loop);
    pthread_mutex_lock(&pool->lock);
    unlink_loop(pool, loop); /* nothing is left to take */
    if (--loop->helpers == 0)
        pthread_cond_signal(&loop->left);
}

static void run_task(struct pool *pool) {
    struct pool_task *task = pool->first;
    pool->first = task->next;
    if (!pool->first)
        pool->last = &pool->first;
    pthread_mutex_unlock(&pool->lock);
    task->run(task);
    pthread_mutex_lock(&pool->lock);
}

static void wake(struct pool *pool, int64_t threads) {
    for (int64_t i = 0; i < threads && i < (int64_t)pool->idle; i++)
        pthread_cond_signal(&pool->work);
}

static void *thread_main(void *arg) {
    struct pool *pool = arg;

    pthread_mutex_lock(&pool->lock);
    while (!atomic_load_explicit(&pool->closing, memory_order_relaxed)) {
        if (pool->loops) {
            help(pool, pool->loops);
        } else if (pool->first) {
            run_task(pool);
        } else {
            pool->idle++;
            pthread_cond_wait(&pool->work, &pool->lock);
            pool->idle--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static enum xop_status start_threads(struct pool *pool, uint32_t threads, struct xop_error *error) {
    sigset_t all, before;
    int failed = 0;

    /* Signals belong to the worker's loop. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->nthreads < threads && !failed) {
        failed = pthread_create(&pool->thread[pool->nthreads], NULL, thread_main, pool);
        if (!failed)
            pthread_setname_np(pool->thread[pool->nthreads++], "xop-cpu");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                        "compute thread %u of %u could not be started: %s", pool->nthreads + 1,
                        threads, strerror(failed));
    return XOP_OK;
}

enum xop_status pool_open(struct pool **out, uint32_t threads, struct xop_error *error) {
    struct pool *pool = calloc(1, sizeof *pool + threads * sizeof pool->thread[0]);
    enum xop_status status;

    *out = NULL;
    if (!pool)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for %u compute threads", threads);
    pool->last = &pool->first;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    status = start_threads(pool, threads, error);
    if (status == XOP_OK)
        *out = pool;
    else
        pool_close(pool);
    return status;
}

void pool_close(struct pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store_explicit(&pool->closing, true, memory_order_relaxed);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->nthreads; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void pool_add(struct pool *pool, struct pool_task *task) {
    task->next = NULL;
    pthread_mutex_lock(&pool->lock);
    *pool->last = task;
    pool->last = &task->next;
    wake(pool, 1);
    pthread_mutex_unlock(&pool->lock);
}

static int64_t pieces_of(int64_t n, int64_t grain) { return n > 0 ? (n - 1) / grain + 1 : 0; }

void pool_parallel(struct pool *pool, int64_t n, int64_t grain,
                   void (*run)(void *arg, int64_t begin, int64_t end), void *arg) {
    struct loop loop = {.run = run, .arg = arg, .n = n, .grain = grain > 0 ? grain : 1};

    loop.pieces = pieces_of(n, loop.grain);
    if (loop.pieces < 2) {
        pool_serial(n, grain, run, arg);
        return;
    }
    pthread_cond_init(&loop.left, NULL);
    pthread_mutex_lock(&pool->lock);
    loop.next = pool->loops;
    pool->loops = &loop; /* cppcheck-suppress autoVariables; taken out again below */
    wake(pool, loop.pieces - 1);
    pthread_mutex_unlock(&pool->lock);
    run_pieces(pool, &loop);
    pthread_mutex_lock(&pool->lock);
    unlink_loop(pool, &loop);
    while (loop.helpers > 0)
        pthread_cond_wait(&loop.left, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_destroy(&loop.left);
}

void pool_serial(int64_t n, int64_t grain, void (*run)(void *arg, int64_t begin, int64_t end),
                 void *arg) {
    if (grain <= 0)
        grain = 1;
    for (int64_t begin = 0; begin < n; begin += grain)
        run(arg, begin, n - begin < grain ? n : begin + grain);
}

uint32_t pool_threads(const struct pool *pool) { return pool->nthreads; }
