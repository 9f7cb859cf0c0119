#include "shared.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

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
