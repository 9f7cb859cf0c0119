/*
 * The seam between a worker and the shared object that runs operators for it: xop-cpu.so or
 * xop-cuda.so, opened with dlopen, each exporting `xop_backend_entry`.
 *
 * The worker owns calls, plans and groups, and every host pointer in them; the backend owns
 * streams, threads, device memory and staging. All functions are called from the worker's loop
 * thread, except open, which may run on a helper thread before the loop starts, and those marked
 * "helper", which one helper thread may call while the loop runs. Of the others none blocks for
 * longer than an enqueue, except close.
 *
 * A backend has `lanes` (CUDA streams; CPU job slots). A lane runs one group at a time.
 */
#ifndef XOP_BACKEND_H
#define XOP_BACKEND_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XOP_BACKEND_ABI 3

struct xop_backend; /* each backend's own */

struct xop_backend_config {
    int device;       /* CUDA ordinal; ignored on the CPU */
    uint32_t lanes;   /* wanted; 0: the backend's choice */
    uint32_t threads; /* CPU: compute threads besides the loop's; 0: one less than the cores */
};

struct xop_device_info {
    char backend[16]; /* "cpu" or "cuda" */
    char device[128]; /* "NVIDIA H200", or the CPU's model name */
    char runtime[64]; /* "CUDA 13.0, driver 13.0", or the CPU's vector extensions */
    char pci[16];     /* where it is on the bus, "0000:1B:00.0"; empty: unknown, or nowhere */
    uint64_t memory_total, memory_free; /* bytes of device memory; host memory on the CPU */
    uint32_t lanes;
    uint32_t threads;
};

/* A group on its way through the backend. `status` and `error` are set when it is done. */
struct xop_group {
    const struct xop_op *op;
    enum xop_pass pass;
    uint32_t ncalls;
    struct xop_call *calls; /* data pointers are memory registered, made or imported before; submit
                               sets the workspace of each */
    const struct xop_plan *const *plans;
    /* NULL, or an entry a call: NULL, or signature->nin + nout pointers to made or imported memory
     * where a copy of that operand is to be when the group is done; NULL: none. */
    void *const *const *keeps;
    uint32_t lane; /* set by submit */
    enum xop_status status;
    struct xop_error error;
    uint64_t copy_ns, run_ns; /* what it took on the device; copy_ns only where staged */
    void *owner;              /* the worker's */
};

/* What the bare device takes, each from issuing to being seen done; medians, in ns. What does not
 * apply is 0. */
struct xop_probe {
    uint64_t launch_ns; /* an empty kernel; on the CPU, nothing */
    uint64_t direct_ns; /* a kernel that reads bytes_in and writes bytes_out of host memory */
    uint64_t copy_ns;   /* the same bytes by the copy engines, one after the other */
    uint64_t device_ns; /* a kernel that reads and writes them in device memory */
};

struct xop_backend_api {
    uint32_t abi;
    const char *name;
    bool apart; /* it computes on none of the host's cores: who polls takes nothing from it */
    /* Fails with UNAVAILABLE and the reason where there is no usable device. */
    enum xop_status (*open)(const struct xop_backend_config *config, struct xop_backend **backend,
                            struct xop_error *error);
    /* Waits for nothing: groups in flight are dropped. */
    void (*close)(struct xop_backend *backend);
    void (*info)(struct xop_backend *backend, struct xop_device_info *info);
    /* The operators that come with this backend. */
    const struct xop_library *(*library)(void);
    /* Copies the bytes of in[0] to out[0], of whatever dtype, the same for both: an operator of no
     * catalogue, with a forward that takes groups. */
    const struct xop_op *(*copy)(void);
    /* Helper. Makes host memory usable in calls (pins it on CUDA). Page-aligned. */
    enum xop_status (*register_host)(struct xop_backend *backend, void *base, size_t bytes,
                                     bool read_only, struct xop_error *error);
    enum xop_status (*unregister_host)(struct xop_backend *backend, void *base,
                                       struct xop_error *error);
    /* Memory for resident tensors, which outlives the process as long as somebody holds its
     * descriptor. Helper, all three. make: at least bytes of it (*bytes is then what there is),
     * zeroed where asked; *descriptor is the caller's. import: what another process made, of
     * exactly these bytes; the descriptor stays the caller's. *base is the device's address, which
     * calls may use as data, and on CUDA nobody else. drop: it is unmapped; no group may be using
     * it. */
    enum xop_status (*memory_make)(struct xop_backend *backend, uint64_t *bytes, bool zeroed,
                                   int *descriptor, void **base, struct xop_error *error);
    enum xop_status (*memory_import)(struct xop_backend *backend, int descriptor, uint64_t bytes,
                                     void **base, struct xop_error *error);
    enum xop_status (*memory_drop)(struct xop_backend *backend, void *base,
                                   struct xop_error *error);
    /* Helper. Times the bare device. */
    enum xop_status (*probe)(struct xop_backend *backend, uint64_t bytes_in, uint64_t bytes_out,
                             struct xop_probe *probe, struct xop_error *error);
    /* How many groups may be submitted now: lanes that are free. */
    uint32_t (*free_lanes)(struct xop_backend *backend);
    /* Starts the group; the worker keeps it unchanged until poll returns it. What fails at once is
     * returned and the group is not taken. DEVICE_FAULT means that the device is lost and the
     * process must end. */
    enum xop_status (*submit)(struct xop_backend *backend, struct xop_group *group,
                              struct xop_error *error);
    /* Up to max groups that are done, each once, all their stores visible to every process. Returns
     * DEVICE_FAULT where the device is lost; *count is then 0. */
    enum xop_status (*poll)(struct xop_backend *backend, struct xop_group **groups, uint32_t max,
                            uint32_t *count, struct xop_error *error);
    /* A descriptor that becomes readable when a group is done, for a loop that sleeps; -1 where the
     * loop has to call poll. poll clears it. */
    int (*descriptor)(struct xop_backend *backend);
};

/* NULL where abi is not this backend's. */
const struct xop_backend_api *xop_backend_entry(uint32_t abi);
typedef const struct xop_backend_api *(*xop_backend_entry_fn)(uint32_t abi);
#define XOP_BACKEND_ENTRY "xop_backend_entry"

#ifdef __cplusplus
}
#endif
#endif
