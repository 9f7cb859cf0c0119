#include "call.h"

#include <stdlib.h>
#include <string.h>

/* Free calls that a client keeps: more than servers usually take on at once of small requests. */
#define POOL_MOST 256u

static const unsigned char padding[PROTO_ALIGNMENT];

/* ---- Making and freeing ---- */

struct call *call_take(struct call_pool *pool) {
    struct xop_result *result = outcome_new();
    struct call *call = pool->free;
    if (!result)
        return NULL;
    if (call) {
        pool->free = call->next;
        pool->count--;
    } else if (!(call = malloc(sizeof *call))) {
        xop_result_free(result);
        return NULL;
    }
    memset(call, 0, offsetof(struct call, parts));
    call->descriptor = -1;
    call->result = result;
    return call;
}

void call_give(struct call_pool *pool, struct call *call) {
    xop_result_free(call->result);
    free(call->large);
    free(call->copy);
    if (pool->count >= POOL_MOST) {
        free(call);
        return;
    }
    call->next = pool->free;
    pool->free = call;
    pool->count++;
}

void call_pool_clear(struct call_pool *pool) {
    for (struct call *call = pool->free, *next; call; call = next) {
        next = call->next;
        free(call);
    }
    *pool = (struct call_pool){NULL, 0};
}

/* ---- Encoding ---- */

static void add_part(struct call *call, const void *bytes, uint64_t length) {
    if (length > 0)
        call->parts[call->nparts++] = (struct iovec){(void *)(uintptr_t)bytes, length};
}

/* The body behind a header of `at` bytes in call->small. */
static void append_body(struct call *call, size_t at, const struct call_body *body) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < body->n; i++) {
        memset(call->small + at + end, 0, body->runs[i].offset - end);
        memcpy(call->small + at + body->runs[i].offset, body->runs[i].data, body->runs[i].bytes);
        end = body->runs[i].offset + body->runs[i].bytes;
    }
    add_part(call, call->small, at + body->bytes);
}

enum xop_status call_encode(struct call *call, const struct message *message,
                            const struct call_body *body, struct xop_error *error) {
    unsigned char *header = call->small;
    size_t bytes = message_encode(message, body->bytes, call->small, CALL_SMALL);
    uint64_t end = 0;
    call->id = message->id;
    if (bytes > 0 && body->bytes <= CALL_SMALL - bytes) {
        append_body(call, bytes, body);
        return XOP_OK;
    }
    if (bytes == 0) {
        header = call->large = malloc(FRAME_PREFIX + PROTO_MAX_HEADER);
        if (!header)
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
        bytes = message_encode(message, body->bytes, header, FRAME_PREFIX + PROTO_MAX_HEADER);
    }
    if (bytes == 0)
        return xop_fail(error, XOP_INVALID_ARGUMENT,
                        "the request's names, attributes and text are not such as a frame's header "
                        "holds: it has %u bytes at most, and text in UTF-8",
                        PROTO_MAX_HEADER);
    add_part(call, header, bytes);
    for (uint32_t i = 0; i < body->n; i++) {
        add_part(call, padding, body->runs[i].offset - end);
        add_part(call, body->runs[i].data, body->runs[i].bytes);
        end = body->runs[i].offset + body->runs[i].bytes;
    }
    return XOP_OK;
}

bool call_detach_memory(struct call *call) {
    size_t bytes = 0, at = 0;
    for (uint32_t i = call->part; i < call->nparts; i++)
        bytes += call->parts[i].iov_len;
    unsigned char *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        return false;
    for (uint32_t i = call->part; i < call->nparts; i++) {
        memcpy(copy + at, call->parts[i].iov_base, call->parts[i].iov_len);
        at += call->parts[i].iov_len;
    }
    free(call->copy);
    call->copy = copy;
    call->parts[0] = (struct iovec){copy, bytes};
    call->part = 0;
    call->nparts = 1;
    return true;
}

void call_fail(struct call *call, enum xop_status status, const char *text) {
    if (call->result)
        xop_fail(&call->result->error, status, "%s", text);
}
