/*
 * Messages: what a frame's header says, as plain structs, and the way between them and msgpack.
 * docs/protocol.md is the specification; the tables in message_table.c are its source in code.
 *
 * Decoding believes nothing: sizes, depth, counts, types, UTF-8 and duplicate keys are checked
 * before msgpack-c sees the bytes, so that memory and stack stay bounded whatever comes. Decoded
 * strings and lists point into the decoder, and are valid until its next use.
 *
 * Threads: a decoder or encoder belongs to one thread at a time.
 */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include "limits.h"

#include <string.h>

enum message_type {
    MESSAGE_NONE = 0,
    /* client to server */
    MESSAGE_HELLO, /* both ways: the first frame of each side */
    MESSAGE_FORWARD,
    MESSAGE_BACKWARD,
    MESSAGE_PUT,
    MESSAGE_GET,
    MESSAGE_FREE,
    MESSAGE_CANCEL,
    MESSAGE_DESCRIBE,
    MESSAGE_STATS,
    MESSAGE_PING,
    MESSAGE_ATTACH,
    MESSAGE_DETACH,
    MESSAGE_DEFINE,
    MESSAGE_LOAD,
    MESSAGE_DRAIN,
    MESSAGE_RELOAD,
    MESSAGE_EXPORT,
    MESSAGE_PROBE,
    /* server to client */
    MESSAGE_RESULT,
    MESSAGE_ERROR,      /* about the connection, which the server then closes */
    MESSAGE_GOAWAY,     /* the server drains: finish, and connect elsewhere */
    MESSAGE_GENERATION, /* a worker was replaced */
    MESSAGE_TYPES
};

/* "forward" and the like; NULL for what is no type. */
const char *message_type_name(enum message_type type);

/* Whether a client may send it. Decoding takes any type and leaves it to its caller to refuse. */
bool message_from_client(enum message_type type);

/* Where a tensor's bytes are. */
enum message_place {
    PLACE_NONE = 0, /* input: no bytes (an operand whose shape alone is needed);
                       output: returned in the response's body */
    PLACE_BODY,     /* at an offset in this frame's body, a multiple of PROTO_ALIGNMENT */
    PLACE_MEMORY,   /* at an offset in client memory that was attached under an id */
    PLACE_RESIDENT, /* device memory held under a handle */
    PLACE_OMIT      /* an output that is not wanted; an optional input that is not given */
};

enum message_access {
    ACCESS_DEFAULT = 0,
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
    ACCESS_READ_WRITE = 3
};

struct message_tensor {
    enum xop_dtype dtype; /* XOP_DTYPE_NONE where a request leaves it to the server */
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    enum message_place place;
    enum message_access access;
    uint64_t id;     /* of the memory, or the handle */
    uint64_t offset; /* in the body, the memory or the resident tensor */
};

/* Any message. Which members a type uses, which it requires and under which keys they travel is
 * the table in message_table.c. Absent numbers are 0. The lists come last, and what is in them
 * behind their counts means nothing: nobody clears, fills or reads it. */
struct message {
    enum message_type type;
    uint64_t id; /* the request's, chosen by the client; never 0 in a request */

    /* hello */
    uint64_t version_min,
        version_max;   /* client: the range it speaks; server: the chosen one twice */
    const char *agent; /* "xopctl 0.1", for logs */
    const char *token;
    uint64_t max_body, max_in_flight; /* server: its limits */
    uint64_t generation;

    /* forward, backward; put, get, free; attach, detach */
    const char *op; /* operator's name; describe: the one asked for, or NULL for all */
    uint32_t nin, nout, nattrs;
    uint64_t keep;    /* forward: keep what backward needs under this context id */
    uint64_t context; /* backward: the context to use */
    uint64_t handle;  /* put, get, free, export: resident handle; attach, detach: memory id */
    uint64_t offset;  /* put, get: first byte of the piece */
    uint64_t length;  /* get: bytes of the piece; attach: bytes of the memory; result to
                         export: bytes of the memory whose descriptor comes along */
    uint64_t bytes_in, bytes_out; /* probe: what the bare device is to read and write */
    uint64_t target;              /* cancel: the request to cancel */
    uint64_t deadline_ms;         /* relative to the header's arrival; 0: none */
    int32_t priority;             /* -8 (last) to 7 (first) */
    int32_t device;               /* -1: any */
    bool check;       /* run with guard bytes around and a poison pattern in the outputs */
    bool write;       /* attach: the server may write it */
    const char *text; /* define: the operator's source; load: the library's name */

    /* result, error, goaway, generation */
    enum xop_status status;
    const char *error;
    bool started; /* DEADLINE_EXCEEDED, CANCELLED: the work had been launched */
    uint64_t queue_ns, copy_ns, run_ns;
    uint32_t batch;    /* calls that shared the launch */
    const char *media; /* describe, stats, ping: what the body is, "application/json" */

    /* the tensors and attributes of forward and backward; put and export have one input, results
     * outputs */
    struct message_tensor in[XOP_MAX_INPUTS], out[XOP_MAX_OUTPUTS];
    struct xop_attr attrs[XOP_MAX_ATTRS];
};

/* Makes message one that says nothing yet, of type and for id, without touching its lists: cheaper
 * than to assign a whole struct message. */
static inline void message_reset(struct message *message, enum message_type type, uint64_t id) {
    memset(message, 0, offsetof(struct message, in));
    message->type = type;
    message->id = id;
    message->device = -1;
}

struct message_decoder; /* memory that decoding reuses */

struct message_decoder *message_decoder_new(void); /* NULL: out of memory */
void message_decoder_free(struct message_decoder *decoder);

/* Decodes a header of a frame whose body has body_bytes. INVALID_ARGUMENT names the key that is
 * wrong; message->type and ->id hold what could be read of them even then, else NONE and 0, so that
 * the error can be answered. Tensors and attributes beyond nin, nout and nattrs are unspecified.
 * The body is checked here as well: ranges of PLACE_BODY tensors are aligned, inside the body, not
 * overlapping, with none of the body left over; a put's piece lies in its tensor; only a result may
 * have another body. */
enum xop_status message_decode(struct message_decoder *decoder, const void *header, size_t bytes,
                               uint64_t body_bytes, struct message *message,
                               struct xop_error *error);

/* Encodes the prefix and header of message into buffer, for a body of body_bytes. Returns the
 * number of bytes written, or 0 where capacity does not suffice (FRAME_PREFIX + PROTO_MAX_HEADER
 * always does) or the message breaks a limit. Members that are 0 or NULL and not required are left
 * out. */
size_t message_encode(const struct message *message, uint64_t body_bytes, void *buffer,
                      size_t capacity);

/* Bytes of a tensor by its dtype and shape, with every overflow checked. */
enum xop_status message_tensor_bytes(const struct message_tensor *tensor, uint64_t *bytes,
                                     struct xop_error *error);

/* offset rounded up to PROTO_ALIGNMENT; false where that wraps. */
bool message_align(uint64_t offset, uint64_t *aligned);

/* Whether bytes are well-formed UTF-8 without NUL. */
bool message_utf8(const char *bytes, size_t length);

/* text with everything but printable ASCII escaped as \xNN, cut to capacity - 1 and terminated: for
 * logs and messages that quote what a client sent. Returns buffer. */
char *message_quote(char *buffer, size_t capacity, const char *text, size_t length);

/* "f32 (3, 4)", the shape as NumPy writes it. Returns buffer. */
char *message_tensor_text(char *buffer, size_t capacity, const struct xop_tensor *tensor);

#endif
