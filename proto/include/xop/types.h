/*
 * What every part of xopd and every program that uses it agrees on: status codes, data types,
 * tensors and attributes. Header only, usable from C17 and C++17 (nvcc included); nothing here
 * allocates, and all of it may be called from any thread.
 */
#ifndef XOP_TYPES_H
#define XOP_TYPES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XOP_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define XOP_PRINTF(text, first)
#endif

/* Status codes carry gRPC's names and numbers; XOP_DEVICE_FAULT is xopd's own. The numbers are
 * part of the wire protocol. */
enum xop_status {
    XOP_OK = 0,
    XOP_CANCELLED = 1,           /* cancelled by the client that sent it */
    XOP_INVALID_ARGUMENT = 3,    /* the request is wrong whatever the server's state */
    XOP_DEADLINE_EXCEEDED = 4,   /* its deadline passed before it was answered */
    XOP_NOT_FOUND = 5,           /* no such operator, handle, memory or context */
    XOP_ALREADY_EXISTS = 6,      /* the chosen handle or id is taken */
    XOP_PERMISSION_DENIED = 7,   /* this identity may not do this */
    XOP_RESOURCE_EXHAUSTED = 8,  /* a limit, a quota or the memory is used up */
    XOP_FAILED_PRECONDITION = 9, /* not in this state, e.g. a context whose tensors changed */
    XOP_ABORTED = 10,            /* a request that it depends on failed */
    XOP_UNIMPLEMENTED = 12,      /* known, but not available here */
    XOP_INTERNAL = 13,           /* a bug in xopd or in an operator */
    XOP_UNAVAILABLE = 14,        /* no server, or no worker just now; trying again may help */
    XOP_DATA_LOSS = 15,          /* what it needed or wrote was lost with a worker */
    XOP_UNAUTHENTICATED = 16,    /* no valid credentials */
    XOP_DEVICE_FAULT = 64        /* the request itself broke the device */
};

/* A failure: its status and one sentence that a person can act on. */
struct xop_error {
    enum xop_status status;
    char message[512];
};

/* The status's name as the protocol and the tools print it, e.g. "INVALID_ARGUMENT". */
static inline const char *xop_status_name(enum xop_status status) {
    switch (status) {
    case XOP_OK: return "OK";
    case XOP_CANCELLED: return "CANCELLED";
    case XOP_INVALID_ARGUMENT: return "INVALID_ARGUMENT";
    case XOP_DEADLINE_EXCEEDED: return "DEADLINE_EXCEEDED";
    case XOP_NOT_FOUND: return "NOT_FOUND";
    case XOP_ALREADY_EXISTS: return "ALREADY_EXISTS";
    case XOP_PERMISSION_DENIED: return "PERMISSION_DENIED";
    case XOP_RESOURCE_EXHAUSTED: return "RESOURCE_EXHAUSTED";
    case XOP_FAILED_PRECONDITION: return "FAILED_PRECONDITION";
    case XOP_ABORTED: return "ABORTED";
    case XOP_UNIMPLEMENTED: return "UNIMPLEMENTED";
    case XOP_INTERNAL: return "INTERNAL";
    case XOP_UNAVAILABLE: return "UNAVAILABLE";
    case XOP_DATA_LOSS: return "DATA_LOSS";
    case XOP_UNAUTHENTICATED: return "UNAUTHENTICATED";
    case XOP_DEVICE_FAULT: return "DEVICE_FAULT";
    }
    return "UNKNOWN";
}

/* Whether a number from the wire or from shared memory is a status this version knows. */
static inline bool xop_status_known(uint64_t code) {
    const uint32_t known = 0x1ffffu & ~(1u << 2) & ~(1u << 11);
    return code == XOP_DEVICE_FAULT || (code <= XOP_UNAUTHENTICATED && (known >> code & 1));
}

/* Nothing went wrong so far: cheaper than to zero the whole message. */
static inline void xop_error_clear(struct xop_error *error) {
    error->status = XOP_OK;
    error->message[0] = 0;
}

/* Fills error (which may be NULL) and returns status, so that a failing function ends with
 * `return xop_fail(error, XOP_..., "...")`. */
static inline enum xop_status xop_vfail(struct xop_error *error, enum xop_status status,
                                        const char *format, va_list args) {
    if (error) {
        error->status = status;
        vsnprintf(error->message, sizeof error->message, format, args);
    }
    return status;
}

static inline enum xop_status XOP_PRINTF(3, 4)
    xop_fail(struct xop_error *error, enum xop_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    xop_vfail(error, status, format, args);
    va_end(args);
    return status;
}

/* Data types. The numbers are internal; the wire and the tools use the names. */
enum xop_dtype {
    XOP_DTYPE_NONE = 0,
    XOP_F16 = 1,  /* IEEE 754 binary16 */
    XOP_BF16 = 2, /* the upper half of a binary32 */
    XOP_F32 = 3,
    XOP_F64 = 4,
    XOP_I32 = 5,
    XOP_I64 = 6,
    XOP_BOOL = 7 /* a byte: 0 is false, all else true */
};
#define XOP_DTYPE_COUNT 8
#define XOP_DTYPE_BIT(dtype) (1u << (dtype))
#define XOP_FLOATS                                                                                 \
    (XOP_DTYPE_BIT(XOP_F16) | XOP_DTYPE_BIT(XOP_BF16) | XOP_DTYPE_BIT(XOP_F32) |                   \
     XOP_DTYPE_BIT(XOP_F64))
#define XOP_INTEGERS (XOP_DTYPE_BIT(XOP_I32) | XOP_DTYPE_BIT(XOP_I64))

/* "f32", "bool" and the like; "none" for what is no data type. */
static inline const char *xop_dtype_name(enum xop_dtype dtype) {
    static const char *const names[XOP_DTYPE_COUNT] = {"none", "f16", "bf16", "f32",
                                                       "f64",  "i32", "i64",  "bool"};
    return (unsigned)dtype < XOP_DTYPE_COUNT ? names[dtype] : "none";
}

/* Bytes an element; 0 for what is no data type. */
static inline size_t xop_dtype_size(enum xop_dtype dtype) {
    static const unsigned char sizes[XOP_DTYPE_COUNT] = {0, 2, 2, 4, 8, 4, 8, 1};
    return (unsigned)dtype < XOP_DTYPE_COUNT ? sizes[dtype] : 0;
}

#define XOP_MAX_RANK 8

/* A dense tensor: little-endian elements in C order (the last dimension varies fastest), as in
 * .npy. rank 0 is a scalar of one element; a dimension of 0 makes the tensor empty. The struct
 * does not own data. Alignment of data: 64 bytes where xopd allocates it, an element's size at
 * least where a caller does. */
struct xop_tensor {
    enum xop_dtype dtype;
    uint32_t rank;
    int64_t shape[XOP_MAX_RANK];
    void *data;
};

/* The number of elements; false where a dimension is negative, the rank too high or the product
 * exceeds INT64_MAX. An empty tensor has 0 even where other dimensions would overflow, as in
 * PyTorch. */
static inline bool xop_tensor_elements(const struct xop_tensor *tensor, int64_t *elements) {
    int64_t n = 1;
    bool empty = false, overflow = false;
    if (tensor->rank > XOP_MAX_RANK)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0)
            return false;
        empty |= tensor->shape[i] == 0;
        overflow |= __builtin_mul_overflow(n, tensor->shape[i], &n);
    }
    *elements = empty ? 0 : n;
    return empty || !overflow;
}

/* The number of bytes; false as above, or where the dtype is none or bytes exceed INT64_MAX. */
static inline bool xop_tensor_bytes(const struct xop_tensor *tensor, uint64_t *bytes) {
    int64_t n;
    size_t size = xop_dtype_size(tensor->dtype);
    if (size == 0 || !xop_tensor_elements(tensor, &n) ||
        __builtin_mul_overflow(n, (int64_t)size, &n))
        return false;
    *bytes = (uint64_t)n;
    return true;
}

/* Attributes: the scalars and short lists that a request carries beside its tensors. */
enum xop_attr_type {
    XOP_ATTR_NONE = 0,
    XOP_ATTR_INT = 1,
    XOP_ATTR_FLOAT = 2, /* an integer is accepted where a float is declared */
    XOP_ATTR_BOOL = 3,
    XOP_ATTR_STRING = 4, /* UTF-8, no NUL inside */
    XOP_ATTR_INTS = 5,
    XOP_ATTR_FLOATS = 6
};

struct xop_attr {
    const char *name;
    enum xop_attr_type type;
    uint32_t count; /* elements of ints or floats; bytes of string, its NUL not counted */
    union {
        int64_t i; /* INT; BOOL as 0 or 1 */
        double f;
        const char *string;
        const int64_t *ints;
        const double *floats;
    } value;
};

/* "int", "float", "bool", "string", "ints", "floats". */
static inline const char *xop_attr_type_name(enum xop_attr_type type) {
    static const char *const names[] = {"none", "int", "float", "bool", "string", "ints", "floats"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "none";
}

/* A forward computes outputs from inputs; a backward computes the gradients of inputs from those
 * of outputs and what the operator says it needs besides. */
enum xop_pass { XOP_FORWARD = 0, XOP_BACKWARD = 1 };
#define XOP_PASS_COUNT 2

/* Limits that hold everywhere: on the wire, in records, in operators. */
#define XOP_MAX_INPUTS 16
#define XOP_MAX_OUTPUTS 16
#define XOP_MAX_ATTRS 24
#define XOP_MAX_NAME 63          /* bytes of an operator's, operand's or attribute's name */
#define XOP_MAX_ATTR_LIST 64     /* elements of an attribute that is a list */
#define XOP_MAX_ATTR_STRING 1024 /* bytes of an attribute that is a string */

#ifdef __cplusplus
}
#endif
#endif
