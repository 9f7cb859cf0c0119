#include "dispatch.h"

#include "answer.h"
#include "memory.h"
#include "operands.h"
#include "request.h"
#include "shared.h"

#include <string.h>

#define QUANTUM (UINT64_C(256) << 10)
/* Turns without a request after which the rounds that are needed are gone at once. */
#define MANY_PASSED 64u
/* Cost that a worker may hold from one I/O thread at once: enough to keep it busy, little enough
 * that what comes next soon gets its turn. */
#define WINDOW (UINT64_C(32) << 20)
/* What costs no more is small, and so much of it passes when the window is full. */
#define SMALL (UINT64_C(64) << 10)
#define SMALL_WINDOW (UINT64_C(4) << 20)

/* ---- Queues ---- */

void dispatch_activate(struct connection *c) {
    if (c->active || !c->queued || c->ended)
        return;
    c->active = true;
    c->next_active = NULL;
    *c->thread->active_tail = c;
    c->thread->active_tail = &c->next_active;
}

static struct connection *pop_active(struct io_thread *thread) {
    struct connection *c = thread->active;
    thread->active = c->next_active;
    if (!thread->active)
        thread->active_tail = &thread->active;
    c->active = false;
    return c;
}

void dispatch_deactivate(struct connection *c) {
    struct io_thread *thread = c->thread;
    if (!c->active)
        return;
    struct connection **at = &thread->active;
    while (*at != c)
        at = &(*at)->next_active;
    *at = c->next_active;
    if (!*at)
        thread->active_tail = at;
    c->active = false;
}

static uint32_t level_of(const struct request *request) {
    return (uint32_t)(request->priority + (int)REQUEST_PRIORITIES / 2) % REQUEST_PRIORITIES;
}

void dispatch_queue(struct request *request) {
    struct connection *c = request->connection;
    uint32_t level = level_of(request);
    if (request->accepted_ns == 0)
        request->accepted_ns = io_now();
    if (request->blockers > 0) {
        request->state = REQUEST_BLOCKED;
        return;
    }
    if (request->aborted_by) {
        request->state = REQUEST_DONE;
        request_fail(request, XOP_ABORTED, "request %llu, whose result this one reads, failed",
                     (unsigned long long)request->aborted_by);
        return;
    }
    request->state = REQUEST_QUEUED;
    request->next = NULL;
    *c->queue_tail[level] = request;
    c->queue_tail[level] = &request->next;
    c->queued |= 1u << level;
    dispatch_activate(c);
}

void dispatch_again(struct request *request) {
    struct io_thread *thread = request->thread;
    request->state = REQUEST_QUEUED;
    request->requeued = true;
    request->next = NULL;
    *thread->again_tail = request;
    thread->again_tail = &request->next;
}

void dispatch_remove(struct request *request) {
    bool again = request->requeued;
    struct connection *c = request->connection;
    uint32_t level = level_of(request);
    struct request **first = again ? &request->thread->again : &c->queue[level];
    struct request ***tail = again ? &request->thread->again_tail : &c->queue_tail[level];
    struct request **at = first;
    while (*at && *at != request)
        at = &(*at)->next;
    if (!*at)
        return; /* on its way from one queue to another */
    *at = request->next;
    if (!*at)
        *tail = at;
    if (!again && !*first)
        c->queued &= ~(1u << level);
    request->requeued = false;
}

static struct request *pop_again(struct io_thread *thread) {
    struct request *request = thread->again;
    thread->again = request->next;
    if (!thread->again)
        thread->again_tail = &thread->again;
    request->requeued = false;
    return request;
}

/* The connection's next by priority; it has one. */
static uint32_t best_level(const struct connection *c) {
    return 31u - (uint32_t)__builtin_clz(c->queued);
}

static struct request *pop(struct connection *c, uint32_t level) {
    struct request *request = c->queue[level];
    c->queue[level] = request->next;
    if (!c->queue[level]) {
        c->queue_tail[level] = &c->queue[level];
        c->queued &= ~(1u << level);
    }
    return request;
}

/* How many rounds it takes until somebody's deficit suffices. */
static uint64_t rounds_needed(const struct io_thread *thread) {
    uint64_t least = UINT64_MAX;
    for (const struct connection *c = thread->active; c; c = c->next_active) {
        uint64_t cost = c->queued ? c->queue[best_level(c)]->cost : 0;
        uint64_t needed = cost > c->deficit ? (cost - c->deficit) / QUANTUM : 0;
        least = needed < least ? needed : least;
    }
    return least;
}

/* Goes as many rounds at once: a request may say that it is as large as it likes. */
static void go_rounds(struct io_thread *thread) {
    uint64_t rounds = rounds_needed(thread);
    for (struct connection *c = thread->active; c; c = c->next_active)
        if (c->queued)
            c->deficit += rounds * QUANTUM;
}

/* The request whose turn it is, or NULL. */
static struct request *next(struct io_thread *thread) {
    uint32_t passed = 0;
    if (thread->again)
        return pop_again(thread);
    while (thread->active) {
        struct connection *c = thread->active;
        if (!c->queued || answer_is_high(c)) {
            pop_active(thread);
            continue;
        }
        uint32_t level = best_level(c);
        uint64_t cost = c->queue[level]->cost;
        if (c->deficit < cost) {
            /* A lone connection need not go round in circles. */
            c->deficit += c->next_active ? QUANTUM : cost;
            pop_active(thread);
            dispatch_activate(c);
            if (++passed % MANY_PASSED == 0)
                go_rounds(thread);
            continue;
        }
        c->deficit -= cost;
        struct request *request = pop(c, level);
        if (!c->queued) {
            c->deficit = 0;
            pop_active(thread);
        }
        return request;
    }
    return NULL;
}

/* A small request that may go although the window is full of large ones, or NULL: what they take
 * milliseconds for it takes microseconds beside them. */
static struct request *next_small(struct io_thread *thread) {
    if (thread->outstanding_small >= SMALL_WINDOW)
        return NULL;
    if (thread->again && thread->again->cost <= SMALL)
        return pop_again(thread);
    for (struct connection *c = thread->active; c; c = c->next_active) {
        uint32_t level = c->queued ? best_level(c) : 0;
        if (!c->queued || answer_is_high(c) || c->queue[level]->cost > SMALL)
            continue;
        struct request *request = pop(c, level);
        dispatch_deactivate(c); /* behind the others, so that each gets its turn */
        dispatch_activate(c);
        return request;
    }
    return NULL;
}

void dispatch_returned(const struct request *request) {
    struct io_thread *thread = request->thread;
    thread->outstanding_cost -= request->cost;
    if (request->cost <= SMALL)
        thread->outstanding_small -= request->cost;
}

/* ---- Handing over ---- */

static bool resolve(struct io_thread *thread, struct request *request) {
    struct generation *generation = thread->generation;
    if (request->kind != SEAM_RUN || request->op_generation == generation->number)
        return true;
    if (!catalogue_find(generation->catalogue, request->op, &request->op_index)) {
        char quoted[96];
        request->state = REQUEST_DONE;
        request_fail(request, XOP_NOT_FOUND,
                     "there is no operator \"%s\" (xopctl ops lists those there are)",
                     message_quote(quoted, sizeof quoted, request->op, strlen(request->op)));
        return false;
    }
    request->op_generation = generation->number;
    request->op_slot = catalogue_slot(generation->catalogue, request->op_index);
    return true;
}

/* Writes the operands where the worker reads them, with offsets in the inbox. */
static void put_arguments(struct io_thread *thread, struct request *request,
                          struct seam_request *record) {
    uint32_t tensors = (uint32_t)request->nin + request->nout;
    size_t bytes = tensors * sizeof(struct seam_tensor) + request->attr_bytes;
    unsigned char *from = request->arguments, *to = record->arguments;
    record->arguments_offset = UINT64_MAX;
    if (request->long_arguments) {
        /* Room for them was taken behind the body, on a multiple of the alignment. */
        uint64_t at = 0;
        message_align(request->body_bytes, &at);
        record->arguments_offset = request->block.offset + at;
        from = request->long_arguments;
        to = thread->front->inbox.base + record->arguments_offset;
    }
    memcpy(to, from, bytes);
    struct seam_tensor *list = (struct seam_tensor *)(void *)to;
    for (uint32_t i = 0; i < request->nin; i++)
        if (list[i].place == SEAM_INBOX)
            list[i].offset += request->block.offset;
    if (request->staying)
        operands_fill(request, list);
}

static uint8_t flags_of(const struct request *request) {
    bool ask = request->staying && request->staying->ask_shapes;
    return (uint8_t)(request->flags | (request->alone ? SEAM_ALONE : 0) | (ask ? SEAM_SHAPES : 0));
}

/* Fills a free record and submits it. RING_FULL: not now. */
static enum ring_outcome submit(struct io_thread *thread, struct request *request) {
    uint32_t index = thread->free_records[thread->nfree - 1];
    struct seam_request *record = &thread->lane.requests[index];
    struct seam_result *result = &thread->lane.results[index];
    record->kind = (uint8_t)request->kind;
    if (request->kind == SEAM_ADOPT || request->kind == SEAM_RELEASE) {
        if (!memory_fill(request, record))
            return RING_FULL;
    }
    atomic_store_explicit(&result->launched, 0, memory_order_relaxed);
    atomic_store_explicit(&result->launched_ns, 0, memory_order_relaxed);
    thread->nfree--;
    request->record = index;
    request->tag = ++thread->next_tag;
    request->state = REQUEST_SUBMITTED;
    thread->records[index] = request;
    thread->outstanding_cost += request->cost;
    if (request->cost <= SMALL)
        thread->outstanding_small += request->cost;
    record->tag = request->tag;
    record->op = request->op_index;
    record->pass = (uint8_t)request->pass;
    record->flags = flags_of(request);
    record->nin = request->nin;
    record->nout = request->nout;
    record->priority = request->priority;
    record->client = request->client;
    record->nattrs = request->nattrs;
    record->attr_bytes = request->attr_bytes;
    record->deadline_ns = request->deadline_ns;
    record->accepted_ns = request->accepted_ns;
    record->bytes_in = request->bytes_in;
    record->bytes_out = request->bytes_out;
    atomic_store_explicit(&record->dropped, 0, memory_order_relaxed);
    put_arguments(thread, request, record);
    return ring_push(&thread->lane.submit, index);
}

/* What needs no worker, or not any more, is answered. True where it was. */
static bool answer_here(struct request *request) {
    struct memory *memory = request->memory;
    if (request->is_export) {
        memory = request->staying->out[0]->memory;
        operands_done(request, true, true);
        answer_export(request->connection, request->id, memory);
    } else if (request->kind == SEAM_ADOPT ||
               (request->kind == SEAM_RELEASE && memory->state != MEMORY_USABLE)) {
        request->succeeded = true;
        answer_ok(request->connection, request->id);
    } else {
        return false;
    }
    request->state = REQUEST_DONE;
    request_detach(request);
    return true;
}

static bool is_ready(struct io_thread *thread, struct request *request) {
    request->state = REQUEST_DONE; /* in no queue */
    if (!resolve(thread, request))
        return false;
    /* What has nothing but its body needs no looking after. */
    if ((request->accesses || request->is_export) && !operands_ready(request))
        return false;
    return !answer_here(request);
}

static bool push_releases(struct io_thread *thread) {
    size_t n = 0;
    while (n < thread->nreleases &&
           ring_push(&thread->lane.release, thread->releases[n]) == RING_OK)
        n++;
    memmove(thread->releases, thread->releases + n, (thread->nreleases - n) * sizeof(uint64_t));
    thread->nreleases -= n;
    return n > 0;
}

static void report_ring(struct io_thread *thread) {
    atomic_store(&thread->generation->faulty, true);
    shared_report(thread, thread->generation,
                  "the worker broke the rules of its seam: a submission ring with impossible "
                  "positions");
}

/* Requests of our own, about memories. One whose descriptor cannot be sent now is tried again in
 * the next round, and the others need not wait for it. False where nothing can be submitted. */
static bool submit_internal(struct io_thread *thread) {
    struct request **at = &thread->internal;
    while (*at && thread->nfree > 0) {
        struct request *request = *at, *following = request->next;
        enum ring_outcome outcome = submit(thread, request);
        if (outcome == RING_FULL) {
            at = &request->next;
            continue;
        }
        *at = following;
        if (!following)
            thread->internal_tail = at;
        if (outcome != RING_OK) {
            report_ring(thread);
            return false;
        }
    }
    return thread->nfree > 0;
}

void dispatch_run(struct io_thread *thread) {
    struct generation *generation = thread->generation;
    order_run(thread);
    if (!generation || atomic_load(&generation->closed))
        return;
    if (thread->nreleases > 0)
        push_releases(thread);
    while (submit_internal(thread)) {
        struct request *request =
            thread->outstanding_cost < WINDOW ? next(thread) : next_small(thread);
        if (!request)
            break;
        if (!is_ready(thread, request)) {
            order_run(thread);
            continue;
        }
        if (submit(thread, request) != RING_OK) {
            report_ring(thread);
            return;
        }
    }
    /* Also for what was released meanwhile: a worker may be waiting for space. */
    bell_ring(&generation_header(generation)->bell, generation->doorbell);
}

void dispatch_refuse_all(struct io_thread *thread, const char *reason) {
    while (thread->again)
        request_fail(thread->again, XOP_UNAVAILABLE, "%s", reason);
    memory_refuse_all(thread, reason);
    /* What depends on these is let go, and ends for that reason. */
    do {
        while (thread->active) {
            struct connection *c = pop_active(thread);
            while (c->queued)
                request_fail(c->queue[best_level(c)], XOP_UNAVAILABLE, "%s", reason);
        }
        order_run(thread);
    } while (thread->active);
}
