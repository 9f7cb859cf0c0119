/*
 * The seam between the front and one generation of a worker: what lies in the memory they share,
 * and what passes over their control socket.
 *
 * Made anew by the front for every generation: the seam (a memfd with rings, records and results),
 * the outbox, the doorbells and the control socket. Only the inbox outlives workers. The front
 * writes requests, the worker writes results; each copies what the other wrote before it checks and
 * uses it.
 *
 * A lane belongs to one I/O thread of the front. It has
 *   submit    front -> worker: index of a filled request record
 *   complete  worker -> front: index of a record whose result is filled
 *   release   front -> worker: offset of an outbox block that was sent
 * and as many slots in submit and complete as records. A record is the front's from the completion
 * on and the worker's from the submission on; the outbox block of its result is the front's until
 * it is released.
 */
#ifndef SHARED_SEAM_H
#define SHARED_SEAM_H

#include "ring.h"

#include <xop/types.h>

#define SEAM_ABI 3u
#define SEAM_MAX_LANES 64u
#define SEAM_INLINE_ARGUMENTS 960u /* bytes of tensors and attributes inside a request record */

/* Descriptors of a worker process, by number. */
enum seam_descriptor {
    SEAM_FD_CONTROL = 3,  /* SOCK_SEQPACKET to the front */
    SEAM_FD_SEAM = 4,     /* memfd: struct seam_header, then the lanes */
    SEAM_FD_INBOX = 5,    /* memfd, mapped read-only by the worker */
    SEAM_FD_OUTBOX = 6,   /* memfd, mapped read-write by the worker, read-only by the front */
    SEAM_FD_DOORBELL = 7, /* eventfd: submissions, releases */
    SEAM_FD_KEEPER = 8,   /* SOCK_SEQPACKET to the parent: see keeper.h */
    SEAM_FD_LANES = 9     /* eventfds, one a lane: completions */
};

/* Where an operand of a record is. */
enum seam_place {
    SEAM_NOWHERE = 0, /* input: shape alone, or not given (dtype none); output: not wanted */
    SEAM_INBOX = 1,   /* input at an offset in the inbox */
    SEAM_OUTBOX = 2,  /* output: the worker allocates it in the outbox */
    SEAM_MEMORY = 3   /* at an offset in a memory that was adopted */
};

struct seam_tensor {
    uint8_t dtype, rank, place, reserved[5];
    uint64_t memory; /* SEAM_MEMORY: its number */
    uint64_t offset;
    /* Where a copy of it has to be when the request is done: an adopted memory, or 0 for none. */
    uint64_t keep_memory, keep_offset;
    int64_t shape[XOP_MAX_RANK];
};

/* Memories besides inbox and outbox, by numbers that the front gives, never twice in its life. A
 * request may name one once its adoption was completed with OK in this generation, and until it is
 * released. */
enum seam_memory_kind {
    SEAM_CLIENT = 1, /* a client's memfd: its descriptor was sent over the control socket before */
    SEAM_DEVICE = 2  /* the device's: asked of the keeper, or made and given to it */
};

enum seam_memory_flags {
    SEAM_WRITABLE = 1, /* SEAM_CLIENT */
    SEAM_ZEROED = 2,   /* SEAM_DEVICE, where it has to be made */
    SEAM_MUST_BE = 4,  /* SEAM_DEVICE: DATA_LOSS where the keeper does not have it */
    SEAM_EXPORT = 8 /* SEAM_DEVICE: its descriptor comes as SEAM_EXPORTED before the completion */
};

struct seam_memory {
    uint64_t number;
    uint64_t bytes;
    uint32_t kind, flags;
};

/* What a record asks for. */
enum seam_kind {
    SEAM_RUN = 0, /* an operator */
    SEAM_COPY,    /* in[0] to out[0], bytes as they are: the request's op and pass do not count */
    SEAM_ADOPT,   /* make a memory usable; result.bytes says how many it has */
    SEAM_RELEASE, /* a memory is not used any more: unmap it, and have the keeper forget it */
    SEAM_PROBE    /* time the bare device; result.probe */
};

/* Attributes follow the tensors, each as: this struct, the name with its NUL, then the value (8
 * bytes an int or float, or a string with its NUL), the whole padded to 8 bytes. */
struct seam_attr {
    uint8_t type;       /* enum xop_attr_type */
    uint8_t name_bytes; /* with the NUL */
    uint16_t bytes;     /* of this struct, name, value and padding */
    uint32_t count;     /* elements, or bytes of a string without its NUL; 1 for a scalar */
};

enum seam_request_flags {
    SEAM_CHECK = 1, /* guard bytes around outputs in the outbox, poison in them */
    SEAM_ALONE = 2, /* a suspect: run with nothing else on the device, synchronised */
    SEAM_SHAPES = 4 /* do not run: complete with the dtypes and shapes of all outputs */
};

/* Written by the front. */
struct seam_request {
    uint64_t tag; /* unlike any other of this generation; the result repeats it */
    uint32_t op;  /* index in the worker's catalogue */
    uint8_t pass, flags, nin, nout;
    int8_t priority;
    uint8_t kind; /* enum seam_kind */
    uint8_t reserved[2];
    uint32_t client; /* the connection's number, for fairness and credit */
    uint32_t nattrs;
    uint32_t attr_bytes;
    uint64_t deadline_ns;         /* CLOCK_MONOTONIC; 0: none */
    uint64_t accepted_ns;         /* CLOCK_MONOTONIC: when the front had the whole request */
    struct seam_memory memory;    /* ADOPT, RELEASE */
    uint64_t bytes_in, bytes_out; /* PROBE */
    /* nin + nout struct seam_tensor, then attr_bytes of attributes: here where they fit in
     * SEAM_INLINE_ARGUMENTS, else in the inbox at arguments_offset. */
    uint64_t arguments_offset; /* UINT64_MAX: in `arguments` */
    alignas(8) unsigned char arguments[SEAM_INLINE_ARGUMENTS];
    /* Set while the worker has the record: nobody waits for it, it need not be started. */
    _Atomic uint32_t dropped;
};

/* As struct xop_probe of kernels/backend.h, which the front does not know. */
struct seam_probe {
    uint64_t launch_ns, direct_ns, copy_ns, device_ns;
};

/* Written by the worker. */
struct seam_result {
    _Atomic uint32_t launched; /* set before launch, a hint for whoever looks at a dead worker */
    uint32_t status;           /* enum xop_status */
    uint64_t tag;
    uint64_t block_offset,
        block_bytes;              /* the outbox block that holds every output; bytes 0: none */
    _Atomic uint64_t launched_ns; /* CLOCK_MONOTONIC, set before `launched`; 0: never launched */
    uint64_t queue_ns, copy_ns, run_ns;
    uint32_t batch;
    uint32_t nout;
    uint64_t bytes;          /* ADOPT: of the whole memory */
    struct seam_probe probe; /* PROBE */
    /* place is SEAM_OUTBOX with an offset inside the block, SEAM_MEMORY as the record said, or
     * SEAM_NOWHERE for what was not wanted; a keep is not repeated. With SEAM_SHAPES all are
     * SEAM_NOWHERE, and have dtype and shape. */
    struct seam_tensor out[XOP_MAX_OUTPUTS];
    char message[512]; /* for a status other than OK, NUL-terminated */
};

/* What the device says of itself. */
enum seam_sensor {
    SEAM_GPU_BUSY = 0,      /* percent of the time in which a kernel ran */
    SEAM_GPU_MEMORY_BUSY,   /* percent of the time in which its memory was read or written */
    SEAM_GPU_MEMORY_USED,   /* bytes, by all processes */
    SEAM_GPU_TEMPERATURE,   /* degrees Celsius */
    SEAM_GPU_POWER,         /* milliwatts */
    SEAM_GPU_POWER_LIMIT,   /* milliwatts, as enforced */
    SEAM_GPU_ECC_CORRECTED, /* errors of memory since the driver was loaded */
    SEAM_GPU_ECC_UNCORRECTED,
    SEAM_SENSORS
};

/* At the start of the seam. */
struct seam_header {
    struct ring_bell bell;                     /* the worker's: it sleeps on SEAM_FD_DOORBELL */
    alignas(64) _Atomic uint64_t heartbeat_ns; /* CLOCK_MONOTONIC, by the worker's loop */
    _Atomic uint64_t memory_free;              /* of the device, refreshed about once a second */
    /* Each a value and 1, or 0 where it is not known; refreshed about once a second. */
    _Atomic uint64_t sensors[SEAM_SENSORS];
};

/* One side's view of a lane. */
struct seam_lane {
    struct ring submit, complete, release;
    struct ring_bell *bell; /* the I/O thread's: it sleeps on its lane's eventfd */
    struct seam_request *requests;
    struct seam_result *results;
};

/* records a lane: a power of two. Bytes of the whole seam. */
size_t seam_bytes(uint32_t lanes, uint32_t records);
/* Views lane `index` of a mapped, zeroed seam. */
void seam_view(void *seam, uint32_t index, uint32_t records, struct seam_lane *lane);
/* The release ring's capacity: blocks the front may hold at once. A front that finds it full keeps
 * the offset and tries again. */
uint32_t seam_release_slots(uint32_t records);

/* Appends an attribute to buffer at *used; false where capacity does not suffice. */
bool seam_put_attr(unsigned char *buffer, size_t capacity, size_t *used,
                   const struct xop_attr *attr);
/* Reads the attribute at *used from bytes that nobody else can write any more. The attr points into
 * buffer. False where it is malformed. */
bool seam_get_attr(const unsigned char *buffer, size_t bytes, size_t *used, struct xop_attr *attr);

/* ---- Control socket ---- */

/* Every message is one packet: struct seam_control, then `bytes` of payload; descriptors alongside
 * where the table in seam.c says so. */
enum seam_control_type {
    SEAM_SETUP = 1, /* front -> worker, first: struct seam_setup */
    SEAM_STOP,      /* front -> worker: exit in order */
    SEAM_READY,     /* worker -> front: struct seam_ready, with a memfd that holds the catalogue */
    SEAM_FAULT,     /* worker -> front: struct seam_fault; the worker exits after it */
    SEAM_GIVE,      /* front -> worker: struct seam_memory, with a client's memfd; the record that
                       adopts it comes after it */
    SEAM_EXPORTED,  /* worker -> front: struct seam_memory, with its descriptor */
    SEAM_TUNE,      /* front -> worker, once it is ready: struct seam_tuning */
    SEAM_CONTROL_TYPES
};

struct seam_control {
    uint32_t type;
    uint32_t bytes;
};

/* What may change while a worker runs. */
struct seam_tuning {
    uint32_t poll_us;            /* how long the loop polls before it sleeps */
    uint32_t batch_max_delay_us; /* how long a call may wait for company; 0: not at all */
    uint32_t log_level;
};

struct seam_setup {
    uint32_t abi;
    uint32_t lanes, records;
    int32_t device;
    uint64_t generation;
    uint64_t inbox_bytes, outbox_bytes;
    uint32_t batch_max;        /* calls a launch takes at most */
    uint32_t streams, threads; /* 0: the backend's choice */
    struct seam_tuning tuning;
    char backend[16];         /* auto, cpu, cuda */
    char backend_path[256];   /* directory of xop-cpu.so and xop-cuda.so */
    char operators_path[256]; /* directory of further libraries; empty: none */
};

struct seam_ready {
    uint32_t operators;       /* in the catalogue, in the order that seam_request.op counts */
    uint32_t catalogue_bytes; /* of JSON in the memfd */
    uint32_t apart;           /* as in kernels/backend.h: polling is free while work is under way */
    uint64_t memory_total;
    char backend[16];
    char device[128];
    char runtime[64];
    char fallback_reason[512]; /* why `auto` took the CPU; empty where it did not fall back */
};

struct seam_fault {
    uint32_t status; /* DEVICE_FAULT: the device is lost; UNAVAILABLE: could not start */
    char message[512];
};

#endif
