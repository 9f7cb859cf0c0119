/*
 * The operands of a request that lie in client memory or stay in the server: found and put in order
 * when its header arrives, checked and given places when it is about to be submitted, and updated
 * when it is through. All on the I/O thread that owns the request.
 */
#ifndef FRONT_OPERANDS_H
#define FRONT_OPERANDS_H

#include "context.h"

/* What a request has to do with tensors that stay; among the thread's free ones when not used. */
struct staying {
    struct staying *next;
    struct resident *in[XOP_MAX_INPUTS],
        *out[XOP_MAX_OUTPUTS];      /* the request's accesses hold them */
    struct context *keep, *context; /* likewise */
    uint32_t from_context;          /* bit i: in[i] is the context's */
    bool ask_shapes, knows_shapes;  /* of outputs: the worker has to say them; it has */
    struct xop_tensor shapes[XOP_MAX_OUTPUTS];
    struct xop_tensor whole; /* put, export: the tensor; get: none */
    uint64_t offset, bytes;  /* put, get: the piece */
};

/* At the header's arrival, with the request's arguments filled. What it names is found and held,
 * and the request is put in order. */
enum xop_status operands_arrive(struct request *request, struct connection *connection,
                                const struct message *message, struct xop_error *error);

/* The context that a backward is to take things from, before its arguments are filled: NULL with OK
 * where it names none. */
enum xop_status operands_context(struct connection *connection, const struct message *message,
                                 struct context **context, struct xop_error *error);

/* put, get and export: their arguments and order. */
enum xop_status operands_put(struct request *request, struct connection *connection,
                             const struct message *message, uint64_t body, struct xop_error *error);
enum xop_status operands_get(struct request *request, struct connection *connection,
                             const struct message *message, struct xop_error *error);
enum xop_status operands_export(struct request *request, struct connection *connection,
                                const struct message *message, struct xop_error *error);

/* Before it is submitted: whether everything it names can be used by the worker now. If not, it has
 * failed, or waits and will be queued again: it is not to be touched then. */
bool operands_ready(struct request *request);

/* Writes a record's tensors: `to` holds a copy of the request's. */
void operands_fill(const struct request *request, struct seam_tensor *to);

/* The worker told the shapes that it was asked for: they are taken over. */
void operands_learn(struct request *request, const struct seam_result *result);

/* It is through: what it wrote is there, or, where it had been launched and failed, uncertain. */
void operands_done(struct request *request, bool ok, bool launched);
/* Its worker died while it was launched. */
void operands_lost(struct request *request);
/* Whether it can run a second time: it writes none of its own inputs. */
bool operands_repeatable(const struct request *request);

/* Ends its order and gives back `staying`. */
void operands_end(struct request *request);

void operands_close(struct io_thread *thread);

static inline struct seam_tensor *operands_tensors(const struct request *request) {
    const void *at = request->long_arguments ? request->long_arguments : request->arguments;
    return (struct seam_tensor *)(uintptr_t)at;
}

static inline struct xop_tensor operands_type(const struct seam_tensor *tensor) {
    struct xop_tensor type = {.dtype = (enum xop_dtype)tensor->dtype, .rank = tensor->rank};
    for (int i = 0; i < XOP_MAX_RANK; i++)
        type.shape[i] = tensor->shape[i];
    return type;
}

/* 0 where the dtype is not known. */
static inline uint64_t operands_bytes(const struct seam_tensor *tensor) {
    struct xop_tensor type = operands_type(tensor);
    uint64_t bytes = 0;
    return xop_tensor_bytes(&type, &bytes) ? bytes : 0;
}

/* The client memory among the request's operands that has this number. */
const struct memory *operands_memory(const struct request *request, uint64_t number);

#endif
