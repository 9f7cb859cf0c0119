#include "complete.h"

#include "answer.h"
#include "connection.h"
#include "dispatch.h"
#include "document.h"
#include "memory.h"
#include "operands.h"
#include "request.h"
#include "shared.h"

#include <stdlib.h>
#include <string.h>

/* More deaths than this while a request was launched are too many, whoever is to blame. */
#define MAX_DEATHS 4
/* Completions of a round: their answers go out before there are more. */
#define TURN 64u

static void free_record(struct io_thread *thread, uint32_t index) {
    struct request *request = thread->records[index];
    thread->records[index] = NULL;
    thread->free_records[thread->nfree++] = index;
    dispatch_returned(request);
}

/* Copies what the result says, as far as it may be looked at. */
static void copy_result(const struct seam_result *from, struct seam_result *to) {
    memcpy((void *)to, (const void *)from, offsetof(struct seam_result, out));
    uint32_t nout = to->nout <= XOP_MAX_OUTPUTS ? to->nout : 0;
    memcpy(to->out, from->out, nout * sizeof *to->out);
    if (to->status == XOP_OK) {
        to->message[0] = 0;
    } else {
        memcpy(to->message, from->message, sizeof to->message);
        to->message[sizeof to->message - 1] = 0;
    }
}

/* asked: what the record said of it; NULL: nothing. */
static const char *check_output(const struct seam_tensor *out, const struct seam_tensor *asked,
                                bool shapes, const struct seam_result *result) {
    struct xop_tensor tensor = {.dtype = (enum xop_dtype)out->dtype, .rank = out->rank};
    uint64_t bytes, end;
    if (out->place == SEAM_NOWHERE && !shapes)
        return NULL;
    if (out->rank > XOP_MAX_RANK)
        return "an output of impossible rank";
    memcpy(tensor.shape, out->shape, sizeof tensor.shape);
    if (!xop_tensor_bytes(&tensor, &bytes))
        return "an output of impossible size";
    if (shapes || (out->place == SEAM_MEMORY && asked && asked->place == SEAM_MEMORY))
        return NULL;
    if (out->place != SEAM_OUTBOX || (asked && asked->place == SEAM_NOWHERE && bytes > 0))
        return "an output in an impossible place";
    if (bytes > 0 &&
        (out->offset < result->block_offset || __builtin_add_overflow(out->offset, bytes, &end) ||
         end > result->block_offset + result->block_bytes))
        return "an output outside its block";
    return NULL;
}

/* What is wrong with a result, or NULL; its block is claimed then. */
static const char *check_result(struct generation *generation, const struct request *request,
                                const struct seam_result *result, uint64_t tag) {
    if (result->tag != tag)
        return "a completion for another request";
    if (!xop_status_known(result->status))
        return "an unknown status";
    if (result->nout > XOP_MAX_OUTPUTS ||
        (request->nout > 0 && result->status == XOP_OK && result->nout != request->nout))
        return "an impossible number of outputs";
    if (result->block_bytes > generation->outbox_bytes ||
        result->block_offset > generation->outbox_bytes - result->block_bytes)
        return "a block outside the outbox";
    bool shapes = request->staying && request->staying->ask_shapes;
    const struct seam_tensor *asked = operands_tensors(request) + request->nin;
    for (uint32_t i = 0; i < result->nout; i++) {
        const char *wrong =
            check_output(&result->out[i], i < request->nout ? &asked[i] : NULL, shapes, result);
        if (wrong)
            return wrong;
    }
    if (result->block_bytes > 0 &&
        !generation_claim(generation, result->block_offset, result->block_bytes))
        return "a block that is in use";
    return NULL;
}

static void count_path(struct io_thread *thread, enum stats_direction direction,
                       const struct resident *resident, const struct seam_tensor *tensor,
                       uint64_t bytes) {
    if (resident || tensor->place == SEAM_MEMORY)
        stats_tally(thread->stats.bytes[resident ? STATS_RESIDENT : STATS_SHM][direction], bytes);
}

/* How the bytes came and went. */
static void count_paths(struct io_thread *thread, const struct request *request,
                        const struct seam_result *result) {
    const struct staying *staying = request->staying;
    const struct seam_tensor *tensors = operands_tensors(request);
    stats_tally(thread->stats.bytes[STATS_INLINE][STATS_IN], request->body_bytes);
    if (result->status != XOP_OK)
        return;
    stats_tally(thread->stats.bytes[STATS_INLINE][STATS_OUT], result->block_bytes);
    if (!request->accesses || (request->kind != SEAM_RUN && request->kind != SEAM_COPY))
        return;
    for (uint32_t i = 0; i < request->nin; i++) {
        const struct resident *resident = staying ? staying->in[i] : NULL;
        uint64_t bytes =
            resident && !tensors[i].dtype ? resident->bytes : operands_bytes(&tensors[i]);
        count_path(thread, STATS_IN, resident, &tensors[i], bytes);
    }
    for (uint32_t i = 0; i < request->nout; i++)
        count_path(thread, STATS_OUT, staying ? staying->out[i] : NULL, &tensors[request->nin + i],
                   operands_bytes(&result->out[i]));
}

static void count(struct io_thread *thread, const struct request *request,
                  const struct seam_result *result) {
    struct op_stats *stats = &thread->ops[request->op_slot][request->pass];
    stats_op_ended(stats, (enum xop_status)result->status);
    stats_tally(stats->bytes_in, request->cost - REQUEST_COST);
    count_paths(thread, request, result);
    if (result->status != XOP_OK) {
        stats_add(request->connection->stats.errors, 1);
        return;
    }
    stats_tally(stats->bytes_out, result->block_bytes);
    for (uint32_t i = 0; i < result->nout; i++)
        if (result->out[i].place == SEAM_MEMORY && !(request->staying && request->staying->out[i]))
            stats_tally(stats->bytes_out, operands_bytes(&result->out[i]));
    if (result->batch > 0)
        stats_op_ran(stats, result->batch);
    stats_histogram_add(&stats->queue, result->queue_ns);
    stats_histogram_add(&stats->run, result->run_ns);
}

/* Tells the client, if there is still one to be told. */
static void answer(struct io_thread *thread, struct request *request,
                   const struct seam_result *result) {
    struct generation *generation = thread->generation;
    struct connection *c = request->connection;
    if (!c) {
        if (result->block_bytes > 0)
            complete_release(thread, generation, result->block_offset, result->block_bytes);
        return;
    }
    count(thread, request, result);
    if (request->kind == SEAM_PROBE && result->status == XOP_OK)
        answer_document_take(
            c, request->id,
            document_probe(thread->front, request->bytes_in, request->bytes_out, &result->probe));
    else
        answer_result(c, request, generation, result);
}

/* The worker is done with a request, and its record is free. */
static void finish(struct io_thread *thread, struct request *request,
                   const struct seam_result *result) {
    bool ok = result->status == XOP_OK;
    request->state = REQUEST_DONE;
    if (request->staying && request->staying->ask_shapes && ok && request->connection) {
        operands_learn(request, result);
        dispatch_again(request);
        return;
    }
    if (request->kind == SEAM_RELEASE)
        memory_released(request->memory);
    operands_done(request, ok && !(request->staying && request->staying->ask_shapes),
                  result->launched_ns != 0);
    answer(thread, request, result);
    if (request->connection)
        request_detach(request);
    else
        request_free(request);
}

static const char *complete_one(struct io_thread *thread, uint64_t index) {
    struct generation *generation = thread->generation;
    struct seam_result result;
    if (index >= generation->records || !thread->records[index])
        return "a completion that names no request";
    struct request *request = thread->records[index];
    copy_result(&thread->lane.results[index], &result);
    const char *wrong = check_result(generation, request, &result, request->tag);
    if (wrong)
        return wrong;
    free_record(thread, (uint32_t)index);
    if (request->memory && request->is_internal)
        memory_completed(request, &result);
    else
        finish(thread, request, &result);
    return NULL;
}

uint32_t complete_drain(struct io_thread *thread) {
    struct generation *generation = thread->generation;
    uint32_t n = 0;
    uint64_t index;
    if (!generation || atomic_load(&generation->faulty))
        return 0;
    for (; n < TURN; n++) {
        enum ring_outcome outcome = ring_pop(&thread->lane.complete, &index);
        if (outcome == RING_EMPTY)
            break;
        const char *wrong = outcome == RING_CORRUPT ? "a ring with impossible positions"
                                                    : complete_one(thread, index);
        if (wrong) {
            atomic_store(&generation->faulty, true);
            shared_report(thread, generation, "the worker broke the rules of its seam: %s", wrong);
            break;
        }
    }
    return n;
}

void complete_release(struct io_thread *thread, struct generation *generation, uint64_t offset,
                      uint64_t bytes) {
    generation_unclaim(generation, offset, bytes);
    if (generation != thread->generation)
        return; /* its worker is gone, and with it whoever would use the block again */
    if (thread->nreleases == 0 && ring_push(&thread->lane.release, offset) == RING_OK)
        return;
    if (thread->nreleases == thread->releases_capacity) {
        size_t capacity = thread->releases_capacity * 2 + 256;
        uint64_t *releases = realloc(thread->releases, capacity * sizeof *releases);
        if (!releases) {
            shared_report(thread, generation, "out of memory for its blocks");
            return;
        }
        thread->releases = releases;
        thread->releases_capacity = capacity;
    }
    thread->releases[thread->nreleases++] = offset;
}

/* ---- A worker's end ---- */

static int by_tag(const void *a, const void *b) {
    const struct request *x = *(struct request *const *)a, *y = *(struct request *const *)b;
    if (x->alone != y->alone)
        return x->alone ? -1 : 1;
    return x->tag < y->tag ? -1 : x->tag > y->tag;
}

/* What the log calls it. */
static const char *name_of(const struct request *request) {
    return *request->op ? request->op : "a transfer";
}

/* What becomes of a request that the dead worker had; false where it is not to be run again. */
static bool judge(struct request *request, const struct generation *generation, bool launched) {
    request->state = REQUEST_DONE; /* in no queue */
    if (request->is_internal) {
        memory_orphaned(request);
        return false;
    }
    if (launched)
        operands_lost(request);
    if (!request->connection) {
        request_free(request);
        return false;
    }
    if (!launched)
        return true;
    request->deaths++;
    const char *op = name_of(request);
    if ((request->alone && generation->blame) || request->deaths >= MAX_DEATHS) {
        connection_log(request->connection, request->id, LOG_LEVEL_WARN,
                       "%s: workers end of it, it is given up", op);
        request_fail(request, XOP_DEVICE_FAULT,
                     "the worker ended each time this request ran, the last time alone: %s",
                     generation->fault);
        return false;
    }
    if (!operands_repeatable(request)) {
        connection_log(request->connection, request->id, LOG_LEVEL_WARN,
                       "%s: what it was changing is lost with its worker", op);
        request_fail(request, XOP_DATA_LOSS,
                     "the worker ended while this request ran, which changes what it reads, so "
                     "that it cannot be run again: %s",
                     generation->fault);
        return false;
    }
    connection_log(request->connection, request->id, LOG_LEVEL_DEBUG,
                   "%s: its worker ended, it runs again alone", op);
    request->alone = true;
    return true;
}

void complete_gone(struct io_thread *thread) {
    struct generation *generation = thread->generation;
    uint32_t n = 0;
    while (complete_drain(thread) > 0)
        ;
    struct request **left = thread->scratch;
    for (uint32_t i = 0; i < generation->records; i++) {
        struct request *request = thread->records[i];
        if (!request)
            continue;
        bool launched = atomic_load(&thread->lane.results[i].launched) != 0;
        free_record(thread, i);
        if (judge(request, generation, launched))
            left[n++] = request;
    }
    qsort(left, n, sizeof *left, by_tag);
    for (uint32_t i = 0; i < n; i++)
        dispatch_again(left[i]);
    memory_gone(thread);
}

void complete_watch(struct io_thread *thread) {
    struct generation *generation = thread->generation;
    uint64_t limit = shared_config(thread)->watchdog_request_ms * 1000000, now = io_now();
    if (!generation || atomic_load(&generation->closed))
        return;
    for (uint32_t i = 0; i < generation->records; i++) {
        const struct seam_result *result = &thread->lane.results[i];
        if (!thread->records[i] || atomic_load(&result->launched) == 0)
            continue;
        uint64_t launched_ns = atomic_load_explicit(&result->launched_ns, memory_order_relaxed);
        if (launched_ns < now && now - launched_ns > limit) {
            const struct request *request = thread->records[i];
            if (request->connection)
                connection_log(request->connection, request->id, LOG_LEVEL_WARN,
                               "%s: it runs for longer than watchdog.request_ms", name_of(request));
            shared_report(thread, generation, "%s ran for more than watchdog.request_ms = %llu",
                          name_of(request), (unsigned long long)(limit / 1000000));
            return;
        }
    }
}
