#include "outcome.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Outputs that have their tensors in the block itself. */
#define FEW 2u
/* Small outputs have their bytes here too. malloc keeps blocks up to 1032 bytes at hand for each
 * thread. */
#define BLOCK_BYTES 1032u

/* The result, and `memory` for what of its outputs does not fit here. */
struct block {
    struct xop_result result;
    void *memory;
    uint64_t length; /* of what the descriptor is of */
    int descriptor;
    struct xop_tensor few[FEW];
    unsigned char bytes[];
};
#define ROOM (BLOCK_BYTES - sizeof(struct block))
_Static_assert(sizeof(struct block) + 2 * PROTO_ALIGNMENT <= BLOCK_BYTES, "no room for bytes");

static struct block *block_of(struct xop_result *result) {
    return (struct block *)(void *)result; /* its first member */
}

struct xop_result *outcome_new(void) {
    struct block *block = malloc(BLOCK_BYTES);
    if (!block)
        return NULL;
    /* The sentence is long, and most results have none. */
    block->result.error.status = XOP_OK;
    block->result.error.message[0] = 0;
    memset((char *)block + offsetof(struct xop_result, out), 0,
           sizeof *block - offsetof(struct xop_result, out));
    block->result.out = block->few;
    block->descriptor = -1;
    return &block->result;
}

void xop_result_free(struct xop_result *result) {
    if (!result)
        return;
    struct block *block = block_of(result);
    if (block->descriptor >= 0)
        close(block->descriptor);
    free(block->memory);
    free(result->text);
    free(block);
}

void outcome_give_descriptor(struct xop_result *result, int descriptor) {
    block_of(result)->descriptor = descriptor;
}

int outcome_take_descriptor(struct xop_result *result, uint64_t *bytes) {
    struct block *block = block_of(result);
    int descriptor = block->descriptor;
    *bytes = block->length;
    block->descriptor = -1;
    return descriptor;
}

/* ---- Outputs ---- */

static bool same(const struct xop_tensor *a, const struct xop_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* A failure has no outputs. */
static void drop_outputs(struct xop_result *result) {
    struct block *block = block_of(result);
    free(block->memory);
    block->memory = NULL;
    result->out = block->few;
    result->nout = 0;
}

/* Whether the library has to provide memory for an output. */
static bool is_provided(const struct expected *expected, const struct xop_tensor *wanted,
                        const struct message *message, uint32_t i) {
    return message->out[i].place == PLACE_BODY && !(i < expected->nwanted && wanted[i].data);
}

static bool add_aligned(uint64_t *sum, uint64_t bytes) {
    return !__builtin_add_overflow(*sum, bytes, sum) && message_align(*sum, sum);
}

static unsigned char *aligned(unsigned char *at) {
    return at + (-(uintptr_t)at & (PROTO_ALIGNMENT - 1));
}

/* Makes room for the tensors and for the outputs that the library provides memory for: all in one
 * allocation, or none. *at is where their bytes go, each at a multiple of 64. */
static bool make_room(struct xop_result *result, const struct expected *expected,
                      const struct xop_tensor *wanted, const struct message *message,
                      unsigned char **at) {
    struct block *block = block_of(result);
    uint64_t bytes = 0, tensors = 0;
    struct xop_error *error = &result->error;
    if (message->nout > FEW)
        tensors = message->nout * sizeof *result->out;
    for (uint32_t i = 0; i < message->nout; i++) {
        uint64_t mine;
        if (!is_provided(expected, wanted, message, i))
            continue;
        if (message_tensor_bytes(&message->out[i], &mine, error) != XOP_OK ||
            !add_aligned(&bytes, mine)) {
            xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for output %u", i);
            return false;
        }
    }
    *at = aligned(block->bytes);
    if (tensors == 0 && bytes <= (uint64_t)(block->bytes + ROOM - *at))
        return true;
    uint64_t all = bytes;
    if (__builtin_add_overflow(all, tensors + PROTO_ALIGNMENT, &all) || all > SIZE_MAX ||
        !(block->memory = malloc((size_t)all))) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for outputs of %llu bytes",
                 (unsigned long long)bytes);
        return false;
    }
    if (tensors > 0)
        result->out = block->memory;
    *at = aligned((unsigned char *)block->memory + tensors);
    return true;
}

/* Whether an output that comes as `to` is what the caller has memory for. */
static bool fits(const struct xop_tensor *wanted, const struct xop_tensor *to, uint32_t i,
                 struct xop_error *error) {
    char came[128], given[128];
    if (same(wanted, to))
        return true;
    message_tensor_text(came, sizeof came, to);
    message_tensor_text(given, sizeof given, wanted);
    xop_fail(error, XOP_INVALID_ARGUMENT, "output %u is %s, but memory for %s was given", i, came,
             given);
    return false;
}

/* One output; *at moves on where the library provides its memory. */
static bool receive_one(struct xop_result *result, const struct expected *expected,
                        const struct xop_tensor *wanted, const struct message *message, uint32_t i,
                        unsigned char **at) {
    const struct message_tensor *from = &message->out[i];
    struct xop_tensor *to = &result->out[i];
    struct xop_error *error = &result->error;
    bool resident = expected->in_resident >> i & 1, memory = expected->in_memory >> i & 1;
    uint64_t bytes = 0;
    *to = (struct xop_tensor){.dtype = from->dtype, .rank = from->rank};
    memcpy(to->shape, from->shape, from->rank * sizeof *to->shape);
    if (from->place == PLACE_OMIT || from->place == PLACE_NONE) {
        *to = (struct xop_tensor){.dtype = XOP_DTYPE_NONE};
        return true;
    }
    if (resident != (from->place == PLACE_RESIDENT) || (from->place == PLACE_MEMORY && !memory)) {
        xop_fail(error, XOP_INTERNAL, "output %u is not where the request placed it", i);
        return false;
    }
    if (resident)
        return true;
    if (!is_provided(expected, wanted, message, i)) {
        to->data = wanted[i].data;
        return fits(&wanted[i], to, i, error);
    }
    to->data = *at;
    if (message_tensor_bytes(from, &bytes, error) != XOP_OK)
        return false;
    *at = aligned(*at + bytes);
    return true;
}

static void receive_outputs(struct xop_result *result, const struct expected *expected,
                            const struct xop_tensor *wanted, const struct message *message,
                            struct reader_segment *segments, uint32_t *nsegments) {
    unsigned char *provided;
    uint32_t n = 0;
    if (expected->told > 0 && message->nout != expected->told) {
        xop_fail(&result->error, XOP_INTERNAL, "%u outputs came, the request was for %u",
                 message->nout, expected->told);
        return;
    }
    if (!make_room(result, expected, wanted, message, &provided))
        return;
    result->nout = message->nout;
    for (uint32_t i = 0; i < message->nout; i++) {
        const struct message_tensor *from = &message->out[i];
        uint64_t bytes = 0;
        if (!receive_one(result, expected, wanted, message, i, &provided)) {
            drop_outputs(result);
            return;
        }
        if (from->place != PLACE_BODY || !xop_tensor_bytes(&result->out[i], &bytes) || bytes == 0)
            continue;
        /* In the order of the body, which need not be that of the outputs. */
        uint32_t at = n++;
        for (; at > 0 && segments[at - 1].offset > from->offset; at--)
            segments[at] = segments[at - 1];
        segments[at] = (struct reader_segment){from->offset, bytes, result->out[i].data};
    }
    *nsegments = n;
}

/* ---- The rest ---- */

static void receive_document(struct xop_result *result, uint64_t body_bytes,
                             struct reader_segment *segments, uint32_t *nsegments) {
    if (body_bytes == 0)
        return;
    result->text = body_bytes < SIZE_MAX ? malloc(body_bytes + 1) : NULL;
    if (!result->text) {
        xop_fail(&result->error, XOP_RESOURCE_EXHAUSTED, "out of memory for the document");
        return;
    }
    result->text[body_bytes] = 0;
    result->text_bytes = body_bytes;
    segments[0] = (struct reader_segment){0, body_bytes, (unsigned char *)result->text};
    *nsegments = 1;
}

static void receive_bytes(struct xop_result *result, const struct expected *expected,
                          uint64_t body_bytes, struct reader_segment *segments,
                          uint32_t *nsegments) {
    if (body_bytes != expected->bytes) {
        xop_fail(&result->error, XOP_INTERNAL, "%llu bytes came, %llu were asked for",
                 (unsigned long long)body_bytes, (unsigned long long)expected->bytes);
        return;
    }
    if (body_bytes == 0)
        return;
    segments[0] = (struct reader_segment){0, body_bytes, expected->to};
    *nsegments = 1;
}

static void receive_export(struct xop_result *result, const struct message *message) {
    struct block *block = block_of(result);
    block->length = message->length;
    if (block->descriptor < 0)
        xop_fail(&result->error, XOP_INTERNAL, "no descriptor came with the server's result");
}

void outcome_receive(struct xop_result *result, const struct expected *expected,
                     const struct xop_tensor *wanted, const struct message *message,
                     uint64_t body_bytes, struct reader_segment *segments, uint32_t *nsegments) {
    *nsegments = 0;
    result->started = message->started;
    result->queue_ns = message->queue_ns;
    result->copy_ns = message->copy_ns;
    result->run_ns = message->run_ns;
    result->batch = message->batch;
    result->error.status = message->status;
    if (message->status != XOP_OK) {
        snprintf(result->error.message, sizeof result->error.message, "%s",
                 message->error ? message->error : xop_status_name(message->status));
        return;
    }
    if ((expected->kind == OUTCOME_RUN) != (message->nout > 0)) {
        xop_fail(&result->error, XOP_INTERNAL, "the server's result has %s outputs",
                 message->nout > 0 ? "unexpected" : "no");
        return;
    }
    switch (expected->kind) {
    case OUTCOME_RUN:
        receive_outputs(result, expected, wanted, message, segments, nsegments);
        break;
    case OUTCOME_DOCUMENT: receive_document(result, body_bytes, segments, nsegments); break;
    case OUTCOME_BYTES: receive_bytes(result, expected, body_bytes, segments, nsegments); break;
    case OUTCOME_EXPORT: receive_export(result, message); break;
    case OUTCOME_PLAIN: break;
    }
}

void outcome_add(struct xop_result *whole, const struct xop_result *piece) {
    if (whole->error.status == XOP_OK && piece->error.status != XOP_OK)
        whole->error = piece->error;
    whole->started |= piece->started;
    whole->copy_ns += piece->copy_ns;
    whole->run_ns += piece->run_ns;
    if (whole->queue_ns < piece->queue_ns)
        whole->queue_ns = piece->queue_ns;
    if (whole->batch < piece->batch)
        whole->batch = piece->batch;
}
