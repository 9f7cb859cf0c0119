#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include "kernels/cpu/pool.h"

struct count {
    struct pool *pool;
    int64_t n, grain;
    atomic_int *seen; /* how often each of n elements was visited */
    atomic_int wrong; /* pieces that are not [k*grain, min(n, (k+1)*grain)) */
};

static void visit(void *arg, int64_t begin, int64_t end) {
    struct count *count = arg;
    int64_t want = count->n - begin < count->grain ? count->n : begin + count->grain;
    if (begin % count->grain != 0 || end != want)
        count->wrong++;
    for (int64_t i = begin; i < end; i++)
        count->seen[i]++;
}

static void assert_visited(struct count *count, int times) {
    assert_int_equal(count->wrong, 0);
    for (int64_t i = 0; i < count->n; i++)
        assert_int_equal(count->seen[i], times);
}

static struct pool *open_pool(uint32_t threads) {
    struct pool *pool;
    struct xop_error error;
    assert_int_equal(pool_open(&pool, threads, &error), XOP_OK);
    assert_int_equal(pool_threads(pool), threads);
    return pool;
}

static void a_loop_visits_every_element_once(void **state) {
    const int64_t sizes[][2] = {{0, 1}, {1, 1}, {7, 3}, {1000, 1}, {1000, 7}, {1000, 5000}};
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        struct pool *pool = open_pool(threads);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct count count = {.n = sizes[i][0], .grain = sizes[i][1]};
            count.seen = calloc(1001, sizeof *count.seen);
            pool_parallel(pool, count.n, count.grain, visit, &count);
            assert_visited(&count, 1);
            memset(count.seen, 0, 1001 * sizeof *count.seen);
            pool_serial(count.n, count.grain, visit, &count);
            assert_visited(&count, 1);
            free(count.seen);
        }
        pool_close(pool);
    }
}

struct meeting {
    pthread_t caller;
    pthread_barrier_t both;
    sem_t caller_left;
    atomic_bool helper_left;
};

/* Run by two threads at once; the helper stays longer than the caller. */
static void meet(void *arg, int64_t begin, int64_t end) {
    struct meeting *meeting = arg;
    (void)begin;
    (void)end;
    pthread_barrier_wait(&meeting->both);
    if (pthread_equal(pthread_self(), meeting->caller)) {
        sem_post(&meeting->caller_left);
        return;
    }
    sem_wait(&meeting->caller_left);
    for (int i = 0; i < 1000; i++)
        sched_yield();
    meeting->helper_left = true;
}

static void a_loop_ends_when_its_helpers_have(void **state) {
    struct pool *pool = open_pool(1);
    struct meeting meeting = {.caller = pthread_self()};
    (void)state;
    pthread_barrier_init(&meeting.both, NULL, 2);
    sem_init(&meeting.caller_left, 0, 0);
    pool_parallel(pool, 2, 1, meet, &meeting);
    assert_true(meeting.helper_left);
    pool_close(pool);
    pthread_barrier_destroy(&meeting.both);
    sem_destroy(&meeting.caller_left);
}

static void visit_all(void *arg, int64_t begin, int64_t end) {
    struct count *count = arg;
    for (int64_t i = begin; i < end; i++)
        pool_parallel(count->pool, count->n, count->grain, visit, count);
}

static void a_loop_may_start_loops(void **state) {
    struct count count = {.n = 100, .grain = 3};
    (void)state;
    count.pool = open_pool(3);
    count.seen = calloc(100, sizeof *count.seen);
    pool_parallel(count.pool, 50, 1, visit_all, &count);
    assert_visited(&count, 50);
    free(count.seen);
    pool_close(count.pool);
}

struct sum_task {
    struct pool_task task;
    struct count count;
    sem_t *finished;
};

static void run_loop(struct pool_task *task) {
    struct sum_task *sum = (struct sum_task *)task;
    pool_parallel(sum->count.pool, sum->count.n, sum->count.grain, visit, &sum->count);
    sem_post(sum->finished);
}

static void every_task_runs_and_may_start_loops(void **state) {
    enum { TASKS = 200 };
    static struct sum_task tasks[TASKS];
    struct pool *pool = open_pool(3);
    sem_t finished;
    (void)state;
    sem_init(&finished, 0, 0);
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = (struct sum_task){{run_loop, NULL}, {pool, 64, 5, NULL, 0}, &finished};
        tasks[i].count.seen = calloc(64, sizeof(atomic_int));
        pool_add(pool, &tasks[i].task);
    }
    for (int i = 0; i < TASKS; i++)
        sem_wait(&finished);
    for (int i = 0; i < TASKS; i++) {
        assert_visited(&tasks[i].count, 1);
        free(tasks[i].count.seen);
    }
    pool_close(pool);
    sem_destroy(&finished);
}

struct order_task {
    struct pool_task task;
    int *log, *length, number;
    sem_t *finished;
};

static void log_number(struct pool_task *task) {
    struct order_task *order = (struct order_task *)task;
    order->log[(*order->length)++] = order->number;
    sem_post(order->finished);
}

static void one_thread_runs_tasks_in_order(void **state) {
    struct pool *pool = open_pool(1);
    struct order_task tasks[20];
    int log[20], length = 0;
    sem_t finished;
    (void)state;
    sem_init(&finished, 0, 0);
    for (int i = 0; i < 20; i++) {
        tasks[i] = (struct order_task){{log_number, NULL}, log, &length, i, &finished};
        pool_add(pool, &tasks[i].task);
    }
    for (int i = 0; i < 20; i++)
        sem_wait(&finished);
    pool_close(pool);
    for (int i = 0; i < 20; i++)
        assert_int_equal(log[i], i);
    sem_destroy(&finished);
}

struct gate_task {
    struct pool_task task;
    sem_t *entered, *leave;
    atomic_int *ran;
};

static void pass_gate(struct pool_task *task) {
    struct gate_task *gate = (struct gate_task *)task;
    (*gate->ran)++;
    sem_post(gate->entered);
    sem_wait(gate->leave);
}

static void *close_it(void *pool) {
    pool_close(pool);
    return NULL;
}

static void closing_waits_for_the_task_that_runs(void **state) {
    struct pool *pool = open_pool(1);
    sem_t entered, leave;
    atomic_int ran = 0;
    struct gate_task first = {{pass_gate, NULL}, &entered, &leave, &ran};
    pthread_t closer;
    (void)state;
    sem_init(&entered, 0, 0);
    sem_init(&leave, 0, 0);
    pool_add(pool, &first.task);
    sem_wait(&entered);
    assert_int_equal(pthread_create(&closer, NULL, close_it, pool), 0);
    pool_close(NULL);
    sem_post(&leave);
    pthread_join(closer, NULL);
    assert_int_equal(ran, 1);
    sem_destroy(&entered);
    sem_destroy(&leave);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_visits_every_element_once),
        cmocka_unit_test(a_loop_ends_when_its_helpers_have),
        cmocka_unit_test(a_loop_may_start_loops),
        cmocka_unit_test(every_task_runs_and_may_start_loops),
        cmocka_unit_test(one_thread_runs_tasks_in_order),
        cmocka_unit_test(closing_waits_for_the_task_that_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
