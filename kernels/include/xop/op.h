/*
 * What an operator is, for those that come with xopd and for those that users compile and load.
 *
 * An operator is data plus a few functions. Each pass (forward, backward) has a signature: named
 * inputs and outputs, `infer`, which checks a call and says what it will need, and `launch`, which
 * runs a group of calls. A library of operators exports one symbol, `xop_library`, made with
 * XOP_LIBRARY. Only a worker process ever loads one.
 *
 * Threads: `infer` runs on the worker's loop thread and must be quick. `launch` runs on the loop
 * thread (CUDA: it only enqueues) or on a thread of the CPU backend (it computes). Neither keeps
 * pointers into its arguments after it returns, except that CUDA kernels use tensor data and
 * workspace until the stream reaches the end of the group.
 */
#ifndef XOP_OP_H
#define XOP_OP_H

#include <xop/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XOP_OP_ABI 1

enum xop_operand_flags {
    /* The shape and dtype are needed, the elements are not: a caller may leave the data out, and
     * `data` is then NULL. */
    XOP_OPERAND_SHAPE_ONLY = 1,
    /* May be missing; rank 0 and dtype XOP_DTYPE_NONE then. */
    XOP_OPERAND_OPTIONAL = 2,
    /* An output that may share its memory with the input of the same index. */
    XOP_OPERAND_IN_PLACE = 4,
    /* A forward output that exists only for backward (a saved intermediate): computed where a
     * context is kept, never sent unless asked for. */
    XOP_OPERAND_SAVED = 8,
    /* Need not have the call's common floating dtype (indices, for instance). */
    XOP_OPERAND_OWN_DTYPE = 16
};

struct xop_operand {
    const char *name; /* [a-z][a-z0-9_]*, unique among a pass's inputs, and among its outputs */
    const char *doc;  /* one line: meaning and shape, as "weight of shape (out, in)" */
    uint32_t flags;
    uint32_t dtypes; /* XOP_DTYPE_BIT mask; 0: the operator's */
};

struct xop_attr_spec {
    const char *name;
    const char *doc;
    enum xop_attr_type type;
    bool required;
    struct xop_attr fallback; /* its value where a request names none and it is not required */
};

/* An index that is out of range: what a launch says of a call whose signature checks an index
 * operand. `at` holds UINT64_MAX before it. Whoever reads an index reads it once and looks at what
 * was read before using it, since a client may be writing it; one out of range is skipped, and the
 * smallest flat position of one is left in `at`: see xop_index in <xop/check.h> and xop_index_bad.
 * The backend fills in the rest. */
struct xop_bad_index {
    uint64_t at;
    int64_t value; /* what lies there */
};

/* One request as an operator sees it. Every tensor is dense; sizes were checked to fit. */
struct xop_call {
    const struct xop_tensor *in; /* in the signature's order, signature->nin of them */
    /* In `infer`: not used. In `launch`: signature->nout of them, shapes as `infer` gave them;
     * data is NULL where the caller does not want that output. */
    const struct xop_tensor *out;
    const struct xop_attr *attrs; /* in the declaration's order, defaults filled in */
    void *workspace;              /* plan.workspace_bytes, aligned to 256; device memory on CUDA */
    struct xop_bad_index *bad_index; /* device memory on CUDA */
};

/* What `infer` finds out. It comes zeroed but for `group`, which is 0 as well. */
struct xop_plan {
    struct xop_tensor out[XOP_MAX_OUTPUTS]; /* dtype, rank, shape of each output */
    uint64_t workspace_bytes;
    /* Bit i: every element of in[i] is read at most once, in streaming order. Such an input may be
     * read across the bus where it lies; others are brought to the device first. */
    uint32_t read_once;
    /* Bit i: every element of out[i] is written exactly once and never read back. */
    uint32_t write_once;
    /* What it costs, for fairness and grouping: bytes moved and floating-point operations. */
    uint64_t bytes;
    uint64_t flops;
    /* Calls share a launch only if operator, pass, dtype, attributes and this number agree. */
    uint64_t group;
    /* Where the signature checks an index operand, values are to be from 0 to this - 1. Only said
     * to whom a bad one is reported, so that other values an operator takes do not count. */
    uint64_t index_limit;
};

/* Services of the worker for a launch. */
struct xop_host {
    /* CPU: splits [0, n) into pieces of at least `grain` and calls run(arg, begin, end) for each
     * on the backend's threads and the caller's; returns when all are done. The split depends on
     * n and grain alone, never on the number of threads, so sums made a piece at a time repeat
     * bit for bit. Pieces are [k*grain, min(n, (k+1)*grain)). */
    void (*parallel)(const struct xop_host *host, int64_t n, int64_t grain,
                     void (*run)(void *arg, int64_t begin, int64_t end), void *arg);
    /* CUDA: the device's number of multiprocessors and its compute capability, 10*major+minor. */
    int multiprocessors;
    int compute_capability;
    /* CUDA: of blocks of 256 threads, a launch needs no more. Where it reads or writes host memory,
     * more would only keep multiprocessors waiting for the bus. 0: as many as it likes. */
    uint32_t max_blocks;
};

/* A group of calls of one operator and pass that share dtype, attributes and plan.group. */
struct xop_launch {
    const struct xop_host *host;
    enum xop_pass pass;
    uint32_t ncalls;
    const struct xop_call *calls;
    const struct xop_plan *const *plans; /* plans[i] is calls[i]'s */
    void *stream;                        /* a cudaStream_t; NULL on the CPU */
};

typedef enum xop_status (*xop_infer_fn)(const struct xop_call *call, struct xop_plan *plan,
                                        struct xop_error *error);
/* Enqueues (CUDA) or runs (CPU) the whole group. An error here fails every call of the group; a
 * fault of the device shows later, on the stream. */
typedef enum xop_status (*xop_launch_fn)(const struct xop_launch *launch, struct xop_error *error);

struct xop_signature {
    const struct xop_operand *in;
    const struct xop_operand *out;
    uint32_t nin, nout;
    xop_infer_fn infer;
    xop_launch_fn launch;
    uint32_t max_group;    /* calls a launch takes at most; 0: one */
    int32_t index_operand; /* the input whose values are indices to be checked, or -1 */
};

/* Backward's inputs are matched by name: a forward input or output of the same name is that
 * tensor, and "grad_NAME" is the gradient of forward output NAME. Its outputs are "grad_NAME" for
 * forward inputs NAME. A pass with launch == NULL is not offered. */
struct xop_op {
    uint32_t abi;     /* XOP_OP_ABI */
    const char *name; /* [a-z][a-z0-9_]*, at most XOP_MAX_NAME bytes */
    const char *doc;  /* Markdown: formula, semantics (PyTorch or ONNX), edge values */
    uint32_t dtypes;  /* XOP_DTYPE_BIT mask of the common dtype */
    const struct xop_attr_spec *attrs;
    uint32_t nattrs;
    struct xop_signature pass[XOP_PASS_COUNT];
};

struct xop_library {
    uint32_t abi;
    const char *backend; /* "cpu" or "cuda" */
    const struct xop_op *const *ops;
    uint32_t nops;
};

/* At file scope, once: XOP_LIBRARY("cpu", &op_a, &op_b) */
#ifdef __cplusplus
#define XOP_LIBRARY_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define XOP_LIBRARY_EXPORT __attribute__((visibility("default")))
#endif
#define XOP_LIBRARY(backend_name, ...)                                                             \
    static const struct xop_op *const xop_library_ops[] = {__VA_ARGS__};                           \
    XOP_LIBRARY_EXPORT const struct xop_library xop_library = {                                    \
        XOP_OP_ABI, backend_name, xop_library_ops,                                                 \
        (uint32_t)(sizeof xop_library_ops / sizeof xop_library_ops[0])}

/* ---- References: what `xopctl op check` judges by ---- */

/* The structs below may grow, and say by their sizes what a library was built with. Version and
 * sizes are checked when it is loaded. */
#define XOP_REFERENCE_ABI 1

struct xop_reference_tensor {
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    int64_t n; /* elements */
    double
        *data; /* to be read for inputs, NULL where the shape alone is known; written for outputs */
    /* Outputs: NaN before. Where an element is a sum or difference, the sum of the absolute values
     * of its terms: rounding is in proportion to that, however much cancels. What stays NaN is
     * taken for |data|. NULL for inputs. */
    double *scale;
    int64_t terms; /* outputs: how many terms an element sums; 1 before */
};

struct xop_reference_call {
    const struct xop_reference_tensor *in; /* in the signature's order */
    struct xop_reference_tensor *out;      /* shapes as `infer` gave them */
    const struct xop_attr *attrs;          /* in the declaration's order, defaults filled in */
    double largest;                        /* finite number of the arithmetic that is judged */
};

/* Plain loops in float64, from the formula and not from the kernel. Runs in xopctl, never in the
 * daemon, on one thread. */
typedef void (*xop_reference_fn)(const struct xop_reference_call *call);

enum xop_reference_flags {
    /* NaN, infinities, denormals and the largest numbers are not tried. */
    XOP_REFERENCE_NO_EDGES = 1
};

struct xop_reference {
    const char *op;                        /* one of the library's operators */
    xop_reference_fn pass[XOP_PASS_COUNT]; /* backward NULL: by central differences alone */
    double low, high;                      /* random inputs lie between; both 0: -2 and 3 */
    uint32_t flags;
};

struct xop_references {
    uint32_t abi;
    uint32_t list_size, call_size, tensor_size; /* bytes of the structs above */
    const struct xop_reference *list;
    uint32_t n;
};

/* At file scope, once and only where there are some:
 *     XOP_REFERENCES({"op_a", {forward, backward}, -2, 3, 0}, ...) */
#define XOP_REFERENCES(...)                                                                        \
    static const struct xop_reference xop_reference_list[] = {__VA_ARGS__};                        \
    XOP_LIBRARY_EXPORT const struct xop_references *xop_library_references(void);                  \
    const struct xop_references *xop_library_references(void) {                                    \
        static const struct xop_references references = {                                          \
            XOP_REFERENCE_ABI,                                                                     \
            (uint32_t)sizeof(struct xop_reference),                                                \
            (uint32_t)sizeof(struct xop_reference_call),                                           \
            (uint32_t)sizeof(struct xop_reference_tensor),                                         \
            xop_reference_list,                                                                    \
            (uint32_t)(sizeof xop_reference_list / sizeof xop_reference_list[0])};                 \
        return &references;                                                                        \
    }

#ifdef __cplusplus
}
#endif
#endif
