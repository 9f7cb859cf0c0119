#include "helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Pages of a hundred gigabytes are made and pinned in less. */
#define HANGS_NS UINT64_C(300000000000)

struct helper {
    struct worker *worker;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    struct helper_job *jobs, **last_job, *patient, **last_patient, *through, **last_through;
    bool stop;
    _Atomic uint32_t waiting;  /* jobs that are through */
    _Atomic uint64_t began_ns; /* the job that it is at; 0: none */
    int descriptor;
};

static struct helper_job *take(struct helper_job **first, struct helper_job ***last) {
    struct helper_job *job = *first;
    *first = job->next;
    if (!*first)
        *last = first;
    return job;
}

static struct helper_job *next_job(struct helper *helper) {
    struct helper_job *job = NULL;
    pthread_mutex_lock(&helper->lock);
    while (!helper->jobs && !helper->patient && !helper->stop)
        pthread_cond_wait(&helper->asked, &helper->lock);
    if (!helper->stop && helper->jobs)
        job = take(&helper->jobs, &helper->last_job);
    else if (!helper->stop)
        job = take(&helper->patient, &helper->last_patient);
    pthread_mutex_unlock(&helper->lock);
    return job;
}

static void *run(void *arg) {
    struct helper *helper = arg;
    const uint64_t one = 1;
    struct helper_job *job;
    while ((job = next_job(helper))) {
        atomic_store(&helper->began_ns, worker_now());
        job->run(helper->worker, job);
        atomic_store(&helper->began_ns, 0);
        job->next = NULL;
        pthread_mutex_lock(&helper->lock);
        *helper->last_through = job;
        helper->last_through = &job->next;
        atomic_fetch_add(&helper->waiting, 1);
        pthread_mutex_unlock(&helper->lock);
        if (write(helper->descriptor, &one, sizeof one) < 0 && errno != EAGAIN)
            log_error("eventfd: %s", strerror(errno));
    }
    return NULL;
}

enum xop_status helper_open(struct worker *worker, struct xop_error *error) {
    struct helper *helper = calloc(1, sizeof *helper);
    if (!helper)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the worker is out of memory");
    helper->worker = worker;
    helper->last_job = &helper->jobs;
    helper->last_patient = &helper->patient;
    helper->last_through = &helper->through;
    pthread_mutex_init(&helper->lock, NULL);
    pthread_cond_init(&helper->asked, NULL);
    helper->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed =
        helper->descriptor < 0 ? errno : pthread_create(&helper->thread, NULL, run, helper);
    if (!failed) {
        worker->helper = helper;
        return XOP_OK;
    }
    if (helper->descriptor >= 0)
        close(helper->descriptor);
    free(helper);
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "cannot start the helper's thread: %s",
                    strerror(failed));
}

static void free_jobs(struct helper_job *job) {
    while (job) {
        struct helper_job *next = job->next;
        free(job);
        job = next;
    }
}

void helper_close(struct worker *worker) {
    struct helper *helper = worker->helper;
    if (!helper)
        return;
    pthread_mutex_lock(&helper->lock);
    helper->stop = true;
    pthread_cond_signal(&helper->asked);
    pthread_mutex_unlock(&helper->lock);
    pthread_join(helper->thread, NULL);
    free_jobs(helper->jobs);
    free_jobs(helper->patient);
    free_jobs(helper->through);
    pthread_mutex_destroy(&helper->lock);
    pthread_cond_destroy(&helper->asked);
    close(helper->descriptor);
    free(helper);
    worker->helper = NULL;
}

void helper_ask(struct worker *worker, struct helper_job *job, bool patient) {
    struct helper *helper = worker->helper;
    struct helper_job ***last = patient ? &helper->last_patient : &helper->last_job;
    job->next = NULL;
    pthread_mutex_lock(&helper->lock);
    **last = job;
    *last = &job->next;
    pthread_cond_signal(&helper->asked);
    pthread_mutex_unlock(&helper->lock);
}

uint32_t helper_finish(struct worker *worker) {
    struct helper *helper = worker->helper;
    uint32_t n = 0;
    uint64_t count;
    if (atomic_load_explicit(&helper->waiting, memory_order_relaxed) == 0)
        return 0;
    if (read(helper->descriptor, &count, sizeof count) < 0 && errno != EAGAIN)
        log_error("eventfd: %s", strerror(errno));
    pthread_mutex_lock(&helper->lock);
    struct helper_job *job = helper->through;
    helper->through = NULL;
    helper->last_through = &helper->through;
    atomic_store(&helper->waiting, 0);
    pthread_mutex_unlock(&helper->lock);
    while (job) {
        struct helper_job *next = job->next;
        job->done(worker, job);
        job = next;
        n++;
    }
    return n;
}

bool helper_hangs(const struct worker *worker, uint64_t now) {
    uint64_t began = atomic_load_explicit(&worker->helper->began_ns, memory_order_relaxed);
    return began > 0 && now > began && now - began > HANGS_NS;
}

int helper_descriptor(const struct worker *worker) { return worker->helper->descriptor; }
