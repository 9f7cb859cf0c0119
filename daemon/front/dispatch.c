#include "dispatch.h"

#include "answer.h"
#include "request.h"
#include "shared.h"

#include <string.h>

#define QUANTUM (UINT64_C(256) << 10)
/* Cost that a worker may hold from one I/O thread at once: enough to keep it busy, little enough
 * that what comes next soon gets its turn. */
#define WINDOW (UINT64_C(256) << 20)

/* ---- Queues ---- */

void dispatch_activate(struct connection *c) {
    if (c->active || !c->queue || c->ended)
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

void dispatch_queue(struct request *request) {
    struct connection *c = request->connection;
    request->state = REQUEST_QUEUED;
    request->accepted_ns = io_now();
    request->next = NULL;
    *c->queue_tail = request;
    c->queue_tail = &request->next;
    dispatch_activate(c);
}

void dispatch_again(struct request *request) {
    struct io_thread *thread = request->thread;
    request->next = NULL;
    *thread->again_tail = request;
    thread->again_tail = &request->next;
}

void dispatch_remove(struct request *request) {
    bool again = request->requeued;
    struct connection *c = request->connection;
    struct request **first = again ? &request->thread->again : &c->queue;
    struct request ***tail = again ? &request->thread->again_tail : &c->queue_tail;
    struct request **at = first;
    while (*at && *at != request)
        at = &(*at)->next;
    if (!*at)
        return; /* on its way from one queue to another */
    *at = request->next;
    if (!*at)
        *tail = at;
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

/* The request whose turn it is, or NULL. */
static struct request *next(struct io_thread *thread) {
    if (thread->again)
        return pop_again(thread);
    while (thread->active) {
        struct connection *c = thread->active;
        if (!c->queue || answer_is_high(c)) {
            pop_active(thread);
            continue;
        }
        uint64_t cost = dispatch_cost(c->queue);
        if (c->deficit < cost) {
            /* A lone connection need not go round in circles. */
            c->deficit += c->next_active ? QUANTUM : cost;
            pop_active(thread);
            dispatch_activate(c);
            continue;
        }
        struct request *request = c->queue;
        c->deficit -= cost;
        c->queue = request->next;
        if (!c->queue) {
            c->queue_tail = &c->queue;
            c->deficit = 0;
            pop_active(thread);
        }
        return request;
    }
    return NULL;
}

/* ---- Handing over ---- */

static bool resolve(struct io_thread *thread, struct request *request) {
    struct generation *generation = thread->generation;
    if (request->op_generation == generation->number)
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
    for (uint32_t i = 0; i < request->nin; i++) {
        struct seam_tensor tensor;
        memcpy(&tensor, to + i * sizeof tensor, sizeof tensor);
        if (tensor.place == SEAM_INBOX)
            tensor.offset += request->block.offset;
        memcpy(to + i * sizeof tensor, &tensor, sizeof tensor);
    }
}

static enum ring_outcome submit(struct io_thread *thread, struct request *request) {
    uint32_t index = thread->free_records[--thread->nfree];
    struct seam_request *record = &thread->lane.requests[index];
    struct seam_result *result = &thread->lane.results[index];
    atomic_store_explicit(&result->launched, 0, memory_order_relaxed);
    atomic_store_explicit(&result->launched_ns, 0, memory_order_relaxed);
    request->record = index;
    request->tag = ++thread->next_tag;
    request->state = REQUEST_SUBMITTED;
    thread->records[index] = request;
    thread->outstanding_cost += dispatch_cost(request);
    record->tag = request->tag;
    record->op = request->op_index;
    record->pass = (uint8_t)request->pass;
    record->flags = (uint8_t)(request->flags | (request->alone ? SEAM_ALONE : 0));
    record->nin = request->nin;
    record->nout = request->nout;
    record->priority = request->priority;
    record->client = request->client;
    record->nattrs = request->nattrs;
    record->attr_bytes = request->attr_bytes;
    record->deadline_ns = request->deadline_ns;
    record->accepted_ns = request->accepted_ns;
    put_arguments(thread, request, record);
    return ring_push(&thread->lane.submit, index);
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

void dispatch_run(struct io_thread *thread) {
    struct generation *generation = thread->generation;
    if (!generation || atomic_load(&generation->closed))
        return;
    if (thread->nreleases > 0)
        push_releases(thread);
    while (thread->nfree > 0 && thread->outstanding_cost < WINDOW) {
        struct request *request = next(thread);
        if (!request)
            break;
        if (!resolve(thread, request))
            continue;
        if (submit(thread, request) != RING_OK) {
            atomic_store(&generation->faulty, true);
            shared_report(thread, generation,
                          "the worker broke the rules of its seam: a submission ring with "
                          "impossible positions");
            return;
        }
    }
    /* Also for what was released meanwhile: a worker may be waiting for space. */
    bell_ring(&generation_header(generation)->bell, generation->doorbell);
}

void dispatch_refuse_all(struct io_thread *thread, const char *reason) {
    while (thread->again)
        request_fail(thread->again, XOP_UNAVAILABLE, "%s", reason);
    while (thread->active) {
        struct connection *c = pop_active(thread);
        while (c->queue)
            request_fail(c->queue, XOP_UNAVAILABLE, "%s", reason);
    }
}
