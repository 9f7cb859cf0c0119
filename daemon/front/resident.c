#include "resident.h"

#include "identity.h"
#include "shared.h"

#include <stdlib.h>
#include <string.h>

/* Pieces that do not touch, at most: what is written in more is not known to be written. */
#define MAX_SPANS 4096u

/* ---- Making and freeing ---- */

static void destroy(struct object *object) {
    struct resident *resident = (struct resident *)object; /* its first member */
    struct connection *c = resident->connection;
    if (c) {
        atomic_fetch_sub_explicit(&c->stats.residents, 1, memory_order_relaxed);
        if (resident->memory)
            atomic_fetch_sub_explicit(&c->stats.resident_bytes, resident->bytes,
                                      memory_order_relaxed);
        if (resident->previous)
            resident->previous->next = resident->next;
        else
            c->holdings.list = resident->next;
        if (resident->next)
            resident->next->previous = resident->previous;
    }
    if (resident->memory)
        memory_give(resident->memory, resident->offset);
    identity_give(resident->payer, QUOTA_RESIDENT, resident->bytes);
    free(resident->written);
    free(resident);
}

struct resident *resident_new(struct connection *c, uint64_t handle, struct xop_error *error) {
    struct resident *resident = NULL;
    if (stats_get(c->stats.residents) >= RESIDENT_MAX) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "%u tensors are resident already: free some",
                 RESIDENT_MAX);
        return NULL;
    }
    resident = calloc(1, sizeof *resident);
    if (!resident || (handle && !table_add(&c->holdings.residents, handle, resident))) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the server is out of memory");
        free(resident);
        return NULL;
    }
    object_init(&resident->object, destroy);
    resident->handle = handle;
    resident->named = handle != 0;
    resident->connection = c;
    resident->next = c->holdings.list;
    if (resident->next)
        resident->next->previous = resident;
    c->holdings.list = resident;
    stats_add(c->stats.residents, 1);
    return resident;
}

struct resident *resident_find(const struct connection *c, uint64_t handle) {
    return table_find(&c->holdings.residents, handle);
}

char *resident_text(const struct resident *resident, char *buffer, size_t capacity) {
    if (resident->handle)
        snprintf(buffer, capacity, "resident tensor %llu", (unsigned long long)resident->handle);
    else
        snprintf(buffer, capacity, "the context's copy");
    return buffer;
}

void resident_unname(struct resident *resident) {
    if (!resident->named)
        return;
    resident->named = false;
    table_remove(&resident->connection->holdings.residents, resident->handle);
    object_drop(&resident->object);
}

void resident_settle(struct resident *resident) {
    const struct order_list *users = &resident->object.wide;
    if (resident->named && resident->nwritten == 0 && resident->version == 0 && !users->readers &&
        !users->writers)
        resident_unname(resident);
}

void resident_close_all(struct connection *c) {
    struct resident *resident;
    while ((resident = table_any(&c->holdings.residents)))
        resident_unname(resident);
    table_close(&c->holdings.residents);
    /* What requests in the worker's hands still use is nobody's now. */
    while ((resident = c->holdings.list)) {
        c->holdings.list = resident->next;
        resident->connection = NULL;
        resident->next = resident->previous = NULL;
    }
}

/* ---- Dtype, shape and place ---- */

enum xop_status resident_type(struct resident *resident, const struct xop_tensor *type,
                              struct xop_error *error) {
    char name[64], has[128], wanted[128];
    uint64_t bytes;
    if (!xop_tensor_bytes(type, &bytes))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "a resident tensor of impossible size");
    if (!resident->typed) {
        resident->typed = true;
        resident->dtype = type->dtype;
        resident->rank = type->rank;
        memcpy(resident->shape, type->shape, sizeof resident->shape);
        resident->bytes = bytes;
        return XOP_OK;
    }
    if (resident->dtype == type->dtype && resident->rank == type->rank &&
        memcmp(resident->shape, type->shape, type->rank * sizeof *type->shape) == 0)
        return XOP_OK;
    struct xop_tensor is = {.dtype = resident->dtype, .rank = resident->rank};
    memcpy(is.shape, resident->shape, sizeof is.shape);
    return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is %s, and cannot become %s: free it first",
                    resident_text(resident, name, sizeof name),
                    message_tensor_text(has, sizeof has, &is),
                    message_tensor_text(wanted, sizeof wanted, type));
}

enum xop_status resident_place(struct resident *resident, bool alone, struct xop_error *error) {
    struct connection *c = resident->connection;
    if (resident->memory || resident->bytes == 0)
        return XOP_OK;
    if (!c)
        return xop_fail(error, XOP_CANCELLED, "its connection is gone");
    uint64_t quota = shared_config(c->thread)->quota_resident_bytes;
    uint64_t has = stats_get(c->stats.resident_bytes);
    if (quota && (resident->bytes > quota || has > quota - resident->bytes))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                        "resident tensors of a connection may have %llu bytes (quota.resident), of "
                        "which %llu are used",
                        (unsigned long long)quota, (unsigned long long)has);
    if (identity_take(c->identity, QUOTA_RESIDENT, resident->bytes, &resident->payer, error) !=
        XOP_OK)
        return error->status;
    if (!memory_take(c->thread, resident->bytes, alone, &resident->memory, &resident->offset,
                     error)) {
        resident->memory = NULL;
        identity_give(resident->payer, QUOTA_RESIDENT, resident->bytes);
        resident->payer = NULL;
        return error->status;
    }
    stats_add(c->stats.resident_bytes, resident->bytes);
    return XOP_OK;
}

/* ---- What it holds ---- */

static bool reserve(struct resident *resident) {
    uint32_t capacity = resident->capacity ? resident->capacity * 2 : 2;
    if (resident->nwritten < resident->capacity)
        return true;
    if (resident->nwritten >= MAX_SPANS)
        return false;
    struct resident_span *larger = realloc(resident->written, capacity * sizeof *larger);
    if (!larger)
        return false;
    resident->written = larger;
    resident->capacity = capacity;
    return true;
}

static void remove_spans(struct resident *resident, uint32_t from, uint32_t to) {
    if (from == to)
        return; /* there may be no spans at all */
    memmove(resident->written + from, resident->written + to,
            (resident->nwritten - to) * sizeof *resident->written);
    resident->nwritten -= to - from;
}

static void insert_span(struct resident *resident, uint32_t at, uint64_t begin, uint64_t end) {
    if (!reserve(resident))
        return;
    memmove(resident->written + at + 1, resident->written + at,
            (resident->nwritten - at) * sizeof *resident->written);
    resident->written[at] = (struct resident_span){begin, end};
    resident->nwritten++;
}

/* The first span that ends behind `at`, or at it. */
static uint32_t first_ending(const struct resident *resident, uint64_t at) {
    uint32_t low = 0, high = resident->nwritten;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (resident->written[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void resident_wrote(struct resident *resident, uint64_t begin, uint64_t end) {
    uint32_t from = first_ending(resident, begin), to = from;
    resident->version++;
    for (; to < resident->nwritten && resident->written[to].begin <= end; to++) {
        begin = resident->written[to].begin < begin ? resident->written[to].begin : begin;
        end = resident->written[to].end > end ? resident->written[to].end : end;
    }
    remove_spans(resident, from, to);
    insert_span(resident, from, begin, end);
    if (begin == 0 && end >= resident->bytes)
        resident->lost = false;
}

void resident_spoilt(struct resident *resident, uint64_t begin, uint64_t end, bool lost) {
    uint32_t at = first_ending(resident, begin);
    resident->version++;
    resident->lost |= lost;
    while (at < resident->nwritten && resident->written[at].begin < end) {
        struct resident_span span = resident->written[at];
        if (span.end <= begin) {
            at++;
            continue;
        }
        remove_spans(resident, at, at + 1);
        if (span.begin < begin)
            insert_span(resident, at++, span.begin, begin);
        if (span.end > end)
            insert_span(resident, at++, end, span.end);
    }
}

enum xop_status resident_readable(const struct resident *resident, uint64_t begin, uint64_t end,
                                  struct xop_error *error) {
    char name[64];
    resident_text(resident, name, sizeof name);
    if (!resident->typed || resident->version == 0)
        return xop_fail(error, XOP_NOT_FOUND, "%s does not exist: nothing was ever written to it",
                        name);
    uint32_t at = first_ending(resident, begin);
    if (begin >= end && !(resident->lost && resident->nwritten == 0))
        return XOP_OK;
    /* A span that only touches from before holds nothing of the range. */
    if (at < resident->nwritten && resident->written[at].end == begin)
        at++;
    if (at < resident->nwritten && resident->written[at].begin <= begin &&
        resident->written[at].end >= end)
        return XOP_OK;
    if (resident->lost)
        return xop_fail(error, XOP_DATA_LOSS,
                        "%s was being written when its worker ended: write it again", name);
    return xop_fail(
        error, XOP_FAILED_PRECONDITION,
        "%s was not written as a whole: bytes from %llu on are missing", name,
        (unsigned long long)(at < resident->nwritten && resident->written[at].begin <= begin
                                 ? resident->written[at].end
                                 : begin));
}
