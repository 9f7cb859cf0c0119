/*
 * libxopclient: run xopd's operators from C.
 *
 *     struct xop_error error;
 *     struct xop_client *client;
 *     if (xop_client_open(NULL, NULL, &client, &error) != XOP_OK)
 *         ...error.message...
 *     float x[3] = {1, 2, 3}, b[1] = {10};
 *     struct xop_tensor in[] = {xop_tensor_1d(XOP_F32, 3, x), xop_tensor_1d(XOP_F32, 1, b)};
 *     struct xop_request request = {.op = "square_bias", .in = in, .nin = 2};
 *     struct xop_result *result;
 *     if (xop_run(client, &request, &result) == XOP_OK)
 *         ...result->out[0].data...
 *     xop_result_free(result);
 *     xop_client_close(client);
 *
 * The library keeps no global state, never raises SIGPIPE, never ends the process, starts no
 * threads. Every call returns a status; a sentence about a failure is in the struct xop_error or in
 * the result.
 *
 * Threads: any call on a client may be made from any thread at any time, except xop_client_close,
 * which must be the last. Blocking calls of several threads share the connection: one of them reads
 * for all. Callbacks run on the thread that is inside xop_client_dispatch or a blocking call, with
 * no lock held: they may call anything but xop_client_close and the blocking calls on this client.
 *
 * fork: a child must not use a client that its parent opened; such use answers FAILED_PRECONDITION.
 */
#ifndef XOP_CLIENT_H
#define XOP_CLIENT_H

#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XOP_CLIENT_VERSION "0.1.0"

struct xop_client;

struct xop_client_options {
    size_t size;           /* sizeof(struct xop_client_options), so that it can grow */
    const char *agent;     /* named in the server's log; NULL: the program's name */
    const char *token;     /* says who this is, to a server that knows it; NULL: none */
    uint64_t timeout_ms;   /* for connecting and hello; 0: 10 s */
    uint64_t max_response; /* a response of more bytes ends the connection; 0: 64 GiB */
    /* A blocking call looks for its answer so many microseconds without sleeping, which takes a
     * core and saves the time of waking up. 0: 50 where the process may use 8 cores or more, else
     * XOP_SPIN_NEVER. */
    uint32_t spin_us;
    /* For tls: addresses, files in PEM: the CA that the server's certificate is verified with
     * (NULL: the system's), and the client's own certificate (NULL: none) and key (NULL: in cert).
     */
    const char *ca, *cert, *key;
    /* Send the token over tcp: too, where whoever listens can read it. Without this it is refused.
     */
    bool insecure_token;
};

#define XOP_SPIN_NEVER UINT32_MAX

/* ---- Connecting ---- */

/* Connects and says hello; blocks for at most options->timeout_ms. address is "unix:/path",
 * "unix:@abstract", "/path", "tls:host:port", "tcp:host:port" or "tcp:[v6]:port"; NULL looks at
 * XOP_ADDRESS, then $XDG_RUNTIME_DIR/xopd/xopd.sock, then /run/xopd/xopd.sock and takes the first
 * that answers; where none does, the message names each one and why. Several addresses with their
 * schemes, separated by commas, here or in XOP_ADDRESS, are tried in turn until one answers; each
 * has its part of the time that is left. options may be NULL. */
enum xop_status xop_client_open(const char *address, const struct xop_client_options *options,
                                struct xop_client **client, struct xop_error *error);

/* Ends the connection. Calls in flight are completed with CANCELLED first, their callbacks run.
 * NULL is allowed. */
void xop_client_close(struct xop_client *client);

/* The address it is connected to, and what the server's hello said; valid until close. */
const char *xop_client_address(const struct xop_client *client);
uint64_t xop_client_max_body(const struct xop_client *client);
uint64_t xop_client_max_in_flight(const struct xop_client *client);

/* ---- Running an operator ---- */

struct xop_request {
    const char *op;
    enum xop_pass pass;
    /* In the order of the operator's signature for that pass. data == NULL for an operand whose
     * shape alone is needed, dtype == XOP_DTYPE_NONE for an optional one that is not given. Data is
     * read until the call returns (blocking) or is done (asynchronous), and not afterwards. */
    const struct xop_tensor *in;
    uint32_t nin;
    /* May be NULL: every output is wanted and the library allocates it. Else one an output:
     * data != NULL gives the memory to receive into, which must have exactly the output's dtype and
     * shape and stay until the call is done; data == NULL with dtype NONE is allocated. */
    const struct xop_tensor *out;
    uint32_t nout;
    /* Bit i: output i is not wanted, and is not computed where that saves work. */
    uint32_t omit;
    /* May be NULL, else nin and nout handles: one that is not 0 names the resident tensor that is
     * this input or takes this output. Such an input has dtype NONE, or the dtype and shape that it
     * must have; such an output likewise, and none of its bytes come here. */
    const uint64_t *in_resident, *out_resident;
    /* Forward: keep in the server what backward needs, under this id (see xop_handle). Backward:
     * take what in leaves out (dtype NONE) from this context. 0: no context. */
    uint64_t keep, context;
    const struct xop_attr *attrs;
    uint32_t nattrs;
    uint64_t deadline_ms; /* 0: none. After it, DEADLINE_EXCEEDED, whatever the server does. */
    int32_t priority;     /* -8 (last) to 7 (first) */
    bool check;           /* guard bytes and poisoned outputs, as verify uses */
};

/* What came of a request. The library owns it; free it with xop_result_free, which also frees the
 * outputs that the library allocated. */
struct xop_result {
    struct xop_error error; /* error.status is XOP_OK where all went well, the message then empty */
    /* An omitted output has dtype XOP_DTYPE_NONE; one that went to a resident tensor has its dtype
     * and shape, and no data. */
    struct xop_tensor *out;
    uint32_t nout;
    bool started; /* the work had been launched (with DEADLINE_EXCEEDED, CANCELLED) */
    uint64_t queue_ns, copy_ns, run_ns; /* in the server: waiting, copying, computing */
    uint32_t batch;                     /* requests that shared the launch */
    char *text;                         /* describe, stats, ping: the JSON document; else NULL */
    size_t text_bytes;
    uint64_t id; /* in a callback: the request's, as xop_submit gave it */
};

void xop_result_free(struct xop_result *result); /* NULL is allowed */

/* Blocking: sends the request and waits. *result is always set, even on failure, unless memory runs
 * out (NULL then, and RESOURCE_EXHAUSTED). Returns result->error.status. */
enum xop_status xop_run(struct xop_client *client, const struct xop_request *request,
                        struct xop_result **result);

/* Asynchronous: queues the request and returns. done is called exactly once, with a result that it
 * owns, for every request for which this returned XOP_OK. *id (may be NULL) is for xop_cancel. What
 * the server does not take on yet waits here, however much that is. */
typedef void (*xop_done_fn)(void *arg, struct xop_result *result);
enum xop_status xop_submit(struct xop_client *client, const struct xop_request *request,
                           xop_done_fn done, void *arg, uint64_t *id, struct xop_error *error);

/* Blocks until a request of xop_submit is done, its callback having returned on this thread or
 * another: true, as for an id that is not in flight. false, for the caller to look at what else
 * there is and to call again: timeout_ms have passed (0: no limit), or this thread, being the one
 * that reads for all, was interrupted by a signal. */
bool xop_wait(struct xop_client *client, uint64_t id, uint64_t timeout_ms);

/* Asks the server to drop a request that has not been launched. The request's own answer comes in
 * any case: CANCELLED, or its result where that was faster. */
enum xop_status xop_cancel(struct xop_client *client, uint64_t id, struct xop_error *error);

/* Blocking requests whose answer is a JSON document, in result->text. op may be NULL: all. The
 * documents are specified in docs/protocol.md. */
enum xop_status xop_describe(struct xop_client *client, const char *op, struct xop_result **result);
enum xop_status xop_stats(struct xop_client *client, struct xop_result **result);
enum xop_status xop_ping(struct xop_client *client, struct xop_result **result);

/* ---- Memory shared with the server ---- */

/* Memory that the server reads and writes in place, so that no byte of a tensor crosses the socket:
 * over Unix sockets alone. Wherever a request's in[i].data, or out[i].data, points into memory that
 * is attached to its client, at a multiple of 64 bytes from its start, the tensor is used where it
 * lies. Other tensors are sent as ever. While a request is under way its inputs must not be
 * written and its outputs not be touched: what is, is computed from or overwritten, at the caller's
 * own loss. Memory may be attached to several clients; each request reads it as its own. */
struct xop_memory;

/* bytes, rounded up to whole pages, of zeroed memory, aligned to a page; the caller's. */
enum xop_status xop_memory_create(size_t bytes, struct xop_memory **memory,
                                  struct xop_error *error);
void *xop_memory_data(const struct xop_memory *memory);
size_t xop_memory_bytes(const struct xop_memory *memory);
/* The memfd, sealed against shrinking and growing; it stays the memory's. */
int xop_memory_descriptor(const struct xop_memory *memory);
/* Detaches it from whatever client it is attached to, without waiting, and unmaps it: no request
 * may be using it. NULL is allowed. */
void xop_memory_free(struct xop_memory *memory);

/* Blocking. write: the server may write it. FAILED_PRECONDITION on a connection that is no Unix
 * socket; RESOURCE_EXHAUSTED beyond the server's quota. */
enum xop_status xop_memory_attach(struct xop_client *client, struct xop_memory *memory, bool write,
                                  struct xop_error *error);
/* Blocking: returns when the server has no use of it any more. NOT_FOUND where it is not attached.
 */
enum xop_status xop_memory_detach(struct xop_client *client, struct xop_memory *memory,
                                  struct xop_error *error);

/* ---- Tensors that stay in the server ---- */

/* A resident tensor is the device's memory, under a handle that the client chooses: any number but
 * 0 that names no other tensor of this client. Requests of one client that touch the same resident
 * tensor run as if one after the other in the order in which they were submitted, so a request may
 * name what an earlier one is still computing; where that fails, it answers ABORTED. Everything is
 * freed when the client closes. Contexts (xop_request.keep) have ids of the same kind, counted
 * apart, and are freed alike. */

/* A number that this client has not returned before. */
uint64_t xop_handle(struct xop_client *client);

/* Blocking. put makes the tensor, or writes it anew where dtype and shape agree. get reads as many
 * bytes as `tensor` has from the beginning of the resident one, which has to have them, into
 * tensor->data; of what dtype and shape that one is, it does not look. Both go in pieces where a
 * request cannot hold them. free takes a handle or a context. */
enum xop_status xop_put(struct xop_client *client, uint64_t handle, const struct xop_tensor *tensor,
                        struct xop_error *error);
enum xop_status xop_get(struct xop_client *client, uint64_t handle, const struct xop_tensor *tensor,
                        struct xop_error *error);
enum xop_status xop_free(struct xop_client *client, uint64_t handle, struct xop_error *error);

/* The same, asynchronous: done is called once, when all of it is done, with a result without
 * outputs. tensor->data stays until then. */
enum xop_status xop_submit_put(struct xop_client *client, uint64_t handle,
                               const struct xop_tensor *tensor, xop_done_fn done, void *arg,
                               struct xop_error *error);
enum xop_status xop_submit_get(struct xop_client *client, uint64_t handle,
                               const struct xop_tensor *tensor, xop_done_fn done, void *arg,
                               struct xop_error *error);
enum xop_status xop_submit_free(struct xop_client *client, uint64_t handle, xop_done_fn done,
                                void *arg, struct xop_error *error);

/* Blocking: makes a zeroed resident tensor of shape's dtype and shape in an allocation of its own
 * and returns a descriptor of that memory, the caller's to close, for use on the same host: with
 * the CUDA backend it is imported with cuMemImportFromShareableHandle
 * (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) on the same device, with the CPU backend it is a memfd
 * to be mapped. *bytes is the size of the whole allocation; the tensor is at its start. Whoever
 * writes it has to synchronise before submitting a request that reads it. Unix sockets alone. */
enum xop_status xop_export(struct xop_client *client, uint64_t handle,
                           const struct xop_tensor *shape, int *descriptor, uint64_t *bytes,
                           struct xop_error *error);

/* ---- Measuring ---- */

/* Blocking: has the worker time its bare device, as a floor for a request that reads bytes_in and
 * writes bytes_out: a JSON document in result->text (docs/protocol.md, probe). It takes some
 * milliseconds, in which others' requests run slower. */
enum xop_status xop_probe(struct xop_client *client, uint64_t bytes_in, uint64_t bytes_out,
                          struct xop_result **result);

/* ---- In an application's event loop ---- */

/* The descriptor to watch; it stays the same until close. */
int xop_client_descriptor(const struct xop_client *client);

/* What to wait for now: POLLIN always while connected, and POLLOUT while there is something to
 * send. It changes with every call on the client. */
short xop_client_events(const struct xop_client *client);

/* Milliseconds until dispatch has a deadline to enforce: -1 for none, 0 for now. */
int xop_client_timeout(const struct xop_client *client);

/* Sends and receives what it can without blocking and calls the callbacks of what is done. A lost
 * connection completes every call in flight with UNAVAILABLE; then, and on every later call, it
 * returns UNAVAILABLE. */
enum xop_status xop_client_dispatch(struct xop_client *client, struct xop_error *error);

/* Blocks until every call in flight is done, or timeout_ms have passed (DEADLINE_EXCEEDED; 0: no
 * limit). */
enum xop_status xop_client_wait(struct xop_client *client, uint64_t timeout_ms,
                                struct xop_error *error);

/* ---- Tensors ---- */

static inline struct xop_tensor xop_tensor_1d(enum xop_dtype dtype, int64_t n, void *data) {
    struct xop_tensor tensor = {dtype, 1, {n}, data};
    return tensor;
}

static inline struct xop_tensor xop_tensor_2d(enum xop_dtype dtype, int64_t rows, int64_t columns,
                                              void *data) {
    struct xop_tensor tensor = {dtype, 2, {rows, columns}, data};
    return tensor;
}

#ifdef __cplusplus
}
#endif
#endif
