#include "shared.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* Loops that were not round for so long are no longer alive: they beat every 100 ms. */
#define STALL_NS UINT64_C(10000000000)

uint64_t io_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void shared_info(struct front *front, struct worker_info *info) {
    pthread_mutex_lock(&front->lock);
    *info = front->info;
    pthread_mutex_unlock(&front->lock);
}

static bool has_stalled(const _Atomic uint64_t *beat_ns, uint64_t now, uint64_t limit_ns) {
    uint64_t beat = atomic_load_explicit(beat_ns, memory_order_relaxed);
    return beat > 0 && beat < now && now - beat > limit_ns;
}

uint32_t shared_stalled_thread(const struct front *front, uint64_t now, uint64_t limit_ns) {
    uint32_t i = 0;
    while (i < front->nthreads && !has_stalled(&front->threads[i].beat_ns, now, limit_ns))
        i++;
    return i;
}

bool shared_alive(const struct front *front, char *reason, size_t capacity) {
    uint64_t now = io_now();
    uint32_t thread;
    if (has_stalled(&front->beat_ns, now, STALL_NS)) {
        snprintf(reason, capacity, "the main loop stands still");
        return false;
    }
    thread = shared_stalled_thread(front, now, STALL_NS);
    if (thread < front->nthreads) {
        snprintf(reason, capacity, "I/O thread %u stands still", thread);
        return false;
    }
    reason[0] = 0;
    return true;
}

bool shared_ready(struct front *front, char *reason, size_t capacity) {
    struct worker_info info;
    bool draining = atomic_load(&front->draining);
    shared_info(front, &info);
    snprintf(reason, capacity, "%s",
             draining       ? "draining: this server is about to stop"
             : info.ready   ? ""
             : *info.reason ? info.reason
                            : "the first worker is starting");
    return !draining && info.ready;
}

uint32_t shared_op_slot(struct front *front, const char *name) {
    uint32_t slot = 0;
    pthread_mutex_lock(&front->lock);
    while (slot < front->nop_names && strcmp(front->op_names[slot], name) != 0)
        slot++;
    if (slot == front->nop_names && slot < STATS_SLOTS - 1) {
        snprintf(front->op_names[slot], sizeof front->op_names[slot], "%s", name);
        front->nop_names++;
    } else if (slot == front->nop_names) {
        slot = STATS_SLOTS - 1;
    }
    pthread_mutex_unlock(&front->lock);
    return slot;
}

void shared_report(struct io_thread *thread, struct generation *generation, const char *format,
                   ...) {
    struct front *front = thread->front;
    bool first;
    va_list args;
    atomic_store(&generation->closed, true);
    pthread_mutex_lock(&front->lock);
    first = front->reported < generation->number;
    if (first) {
        front->reported = generation->number;
        va_start(args, format);
        vsnprintf(front->report, sizeof front->report, format, args);
        va_end(args);
    }
    pthread_mutex_unlock(&front->lock);
    uint64_t one = 1;
    if (first && write(front->report_fd, &one, sizeof one) < 0)
        log_error("cannot report: %m");
}
