/*
 * The CPU as a backend (kernels/backend.h). A lane is a slot for one group. What moves few bytes is
 * computed inside submit, on the loop's thread, since handing it over would cost more than it does;
 * the rest is a task of the pool. Done groups wait in a list for poll.
 */
#include "kernels/backend.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/binary.h"
#include "kernels/cast.h"
#include "kernels/copy.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/fold.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/memfile.h"
#include "kernels/cpu/planes.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/probe.h"
#include "kernels/cpu/rotary.h"
#include "kernels/cpu/row.h"
#include "kernels/cpu/upsample.h"
#include "kernels/cpu/where.h"
#include "kernels/cpu/window.h"
#include "kernels/fold.h"
#include "kernels/linear.h"
#include "kernels/matmul.h"
#include "kernels/optimizer.h"
#include "kernels/planes.h"
#include "kernels/registry.h"
#include "kernels/rotary.h"
#include "kernels/row.h"
#include "kernels/square_bias.h"
#include "kernels/unary.h"
#include "kernels/upsample.h"
#include "kernels/where.h"
#include "kernels/window.h"

#include <xop/check.h>

#define DEFAULT_LANES 4u
#define MAX_LANES 64u
#define MAX_THREADS 1024u
/* A group that moves no more bytes than this is computed at once: 10 to 70 us of work, where
 * handing over to a thread of the pool and being woken by it took 40 to 100 us (measured, 2 cores).
 */
#define INLINE_BYTES (UINT64_C(512) << 10)
/* Operations that take no longer than moving a byte does; what needs more of them counts for more
 * bytes than it moves. */
#define FLOPS_A_BYTE 4

static const struct registry_launch table[] = {
    {&square_bias_declaration, square_bias_cpu_forward, square_bias_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&sigmoid_declaration, sigmoid_cpu_forward, sigmoid_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&sigmoid_complement_declaration, sigmoid_complement_cpu_forward,
     sigmoid_complement_cpu_backward, LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
    {&bose_einstein_declaration, bose_einstein_cpu_forward, bose_einstein_cpu_backward,
     LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
    {&linear_declaration, linear_cpu_forward, linear_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&matmul_declaration, matmul_cpu_forward, matmul_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&sgd_declaration, sgd_cpu_forward, NULL, LAUNCH_MAX_GROUP, 0},
    {&adam_declaration, adam_cpu_forward, NULL, LAUNCH_MAX_GROUP, 0},
    {&adamw_declaration, adamw_cpu_forward, NULL, LAUNCH_MAX_GROUP, 0},
    {&cast_declaration, cast_cpu_forward, cast_cpu_backward, LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
#define UNARY(name, ...)                                                                           \
    {&unary_declarations[UNARY_##name], unary_##name##_cpu_forward, unary_##name##_cpu_backward,   \
     LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
#include "kernels/unary.def"
#define BINARY(name, ...)                                                                          \
    {&binary_declarations[BINARY_##name], binary_##name##_cpu_forward,                             \
     binary_##name##_cpu_backward, LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
#include "kernels/binary.def"
    {&softmax_declaration, softmax_cpu_forward, softmax_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&log_softmax_declaration, log_softmax_cpu_forward, log_softmax_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&layer_norm_declaration, layer_norm_cpu_forward, layer_norm_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&rms_norm_declaration, rms_norm_cpu_forward, rms_norm_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&group_norm_declaration, group_norm_cpu_forward, group_norm_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&batch_norm_declaration, batch_norm_cpu_forward, batch_norm_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&max_pool2d_declaration, max_pool2d_cpu_forward, max_pool2d_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&avg_pool2d_declaration, avg_pool2d_cpu_forward, avg_pool2d_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&upsample_declaration, upsample_cpu_forward, upsample_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
    {&rotary_embedding_declaration, rotary_embedding_cpu_forward, rotary_embedding_cpu_backward,
     LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
    {&attention_declaration, attention_cpu_forward, attention_cpu_backward, LAUNCH_MAX_GROUP,
     LAUNCH_MAX_GROUP},
#define FOLD(name, kind)                                                                           \
    {                                                                                              \
        &fold_declarations[kind], name##_cpu_forward, name##_cpu_backward, LAUNCH_MAX_GROUP,       \
            LAUNCH_MAX_GROUP                                                                       \
    }
    FOLD(sum, FOLD_SUM),
    FOLD(mean, FOLD_MEAN),
    FOLD(max, FOLD_MAX),
    FOLD(min, FOLD_MIN),
    FOLD(prod, FOLD_PROD),
    FOLD(logsumexp, FOLD_LOGSUMEXP),
    FOLD(var, FOLD_VAR),
#define LOSS(name)                                                                                 \
    {                                                                                              \
        &name##_declaration, name##_cpu_forward, name##_cpu_backward, LAUNCH_MAX_GROUP,            \
            LAUNCH_MAX_GROUP                                                                       \
    }
    LOSS(mse_loss),
    LOSS(binary_cross_entropy_with_logits),
    LOSS(cross_entropy),
    LOSS(nll_loss),
    {&where_declaration, where_cpu_forward, where_cpu_backward, LAUNCH_MAX_GROUP, LAUNCH_MAX_GROUP},
};

struct lane {
    struct pool_task task; /* first, so that a task is its lane */
    struct xop_backend *backend;
    struct xop_group *group; /* NULL: free */
    void *workspace;         /* of the group's calls; it grows and is kept */
    uint64_t workspace_bytes;
};

/* What a launch sees; first is the public part, so that one leads to the other. */
struct cpu_host {
    struct xop_host host;
    struct pool *pool;
};

struct xop_backend {
    struct cpu_host inline_host, pool_host;
    struct pool *pool;
    struct memfile memory;
    int event;
    uint32_t nlanes, nfree;
    /* Guards what follows and the lanes' done groups. */
    pthread_mutex_t lock;
    uint32_t done[MAX_LANES], ndone; /* lanes whose group is done, in that order */
    bool signalled;                  /* the eventfd is readable */
    struct lane lane[MAX_LANES];
};

static void host_serial(const struct xop_host *host, int64_t n, int64_t grain,
                        void (*run)(void *arg, int64_t begin, int64_t end), void *arg) {
    (void)host;
    pool_serial(n, grain, run, arg);
}

static void host_parallel(const struct xop_host *host, int64_t n, int64_t grain,
                          void (*run)(void *arg, int64_t begin, int64_t end), void *arg) {
    pool_parallel(((const struct cpu_host *)host)->pool, n, grain, run, arg);
}

static uint32_t cores(void) {
    cpu_set_t set;
    long n;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN); /* more than cpu_set_t can hold */
    return n > 0 ? (uint32_t)n : 1;
}

static void cpu_close(struct xop_backend *backend) {
    if (!backend)
        return;
    pool_close(backend->pool);
    memfile_close(&backend->memory);
    for (uint32_t i = 0; i < MAX_LANES; i++)
        free(backend->lane[i].workspace);
    if (backend->event >= 0)
        close(backend->event);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

static enum xop_status cpu_open(const struct xop_backend_config *config, struct xop_backend **out,
                                struct xop_error *error) {
    struct xop_backend *backend = calloc(1, sizeof *backend);
    uint32_t threads = config->threads, n = cores();
    enum xop_status status;

    *out = NULL;
    if (!backend)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for the CPU backend");
    pthread_mutex_init(&backend->lock, NULL);
    memfile_open(&backend->memory);
    blas_open();
    backend->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (backend->event < 0) {
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
        goto out;
    }
    backend->nlanes = config->lanes ? config->lanes : DEFAULT_LANES;
    if (backend->nlanes > MAX_LANES)
        backend->nlanes = MAX_LANES;
    backend->nfree = backend->nlanes;
    if (threads == 0)
        threads = n > 1 ? n - 1 : 1;
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    status = pool_open(&backend->pool, threads, error);
    if (status != XOP_OK)
        goto out;
    backend->inline_host.host.parallel = host_serial;
    backend->pool_host.host.parallel = host_parallel;
    backend->pool_host.pool = backend->pool;
    *out = backend;
    backend = NULL;
out:
    cpu_close(backend);
    return status;
}

static void cpu_name(char *name, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    struct utsname machine;

    snprintf(name, size, "%s processor", uname(&machine) == 0 ? machine.machine : "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(name, size, "%s", colon);
        break;
    }
    if (file)
        fclose(file);
}

static void cpu_info(struct xop_backend *backend, struct xop_device_info *info) {
    struct sysinfo memory;

    memset(info, 0, sizeof *info);
    snprintf(info->backend, sizeof info->backend, "cpu");
    cpu_name(info->device, sizeof info->device);
    snprintf(info->runtime, sizeof info->runtime, "%s%s%.40s", loops_best()->name,
             blas_best() ? ", " : "", blas_best() ? blas_best()->name : "");
    if (sysinfo(&memory) == 0) {
        info->memory_total = (uint64_t)memory.totalram * memory.mem_unit;
        info->memory_free = (uint64_t)memory.freeram * memory.mem_unit;
    }
    info->lanes = backend->nlanes;
    info->threads = pool_threads(backend->pool);
}

static const struct xop_library *cpu_library(void) {
    return registry_library("cpu", table, (uint32_t)(sizeof table / sizeof *table));
}

static const struct xop_op *cpu_copy(void) {
    static const struct registry_launch launch = {&copy_declaration, copy_cpu_forward, NULL,
                                                  LAUNCH_MAX_GROUP, 0};
    static struct xop_op op;
    if (!op.name)
        registry_bind(&op, &launch);
    return &op;
}

/* ---- Memory ---- */

/* Any memory of the process will do. */
static enum xop_status cpu_register(struct xop_backend *backend, void *base, size_t bytes,
                                    bool read_only, struct xop_error *error) {
    (void)backend;
    (void)base;
    (void)bytes;
    (void)read_only;
    (void)error;
    return XOP_OK;
}

static enum xop_status cpu_unregister(struct xop_backend *backend, void *base,
                                      struct xop_error *error) {
    (void)backend;
    (void)base;
    (void)error;
    return XOP_OK;
}

static enum xop_status cpu_memory_make(struct xop_backend *backend, uint64_t *bytes, bool zeroed,
                                       int *descriptor, void **base, struct xop_error *error) {
    (void)zeroed; /* it always is */
    return memfile_make(&backend->memory, bytes, descriptor, base, error);
}

static enum xop_status cpu_memory_import(struct xop_backend *backend, int descriptor,
                                         uint64_t bytes, void **base, struct xop_error *error) {
    return memfile_import(&backend->memory, descriptor, bytes, base, error);
}

static enum xop_status cpu_memory_drop(struct xop_backend *backend, void *base,
                                       struct xop_error *error) {
    return memfile_drop(&backend->memory, base, error);
}

static enum xop_status cpu_probe(struct xop_backend *backend, uint64_t bytes_in, uint64_t bytes_out,
                                 struct xop_probe *probe, struct xop_error *error) {
    return probe_cpu(backend->pool, bytes_in, bytes_out, probe, error);
}

/* ---- Groups ---- */

/* What call i of a group takes, in bytes moved. */
static uint64_t effort(const struct xop_group *group, uint32_t i) {
    uint64_t bytes = group->plans[i]->bytes, flops = group->plans[i]->flops / FLOPS_A_BYTE;
    return (flops > bytes ? flops : bytes) + 2 * copy_kept_bytes(group, i);
}

static uint32_t cpu_free_lanes(struct xop_backend *backend) { return backend->nfree; }

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The values at the positions that the launch has left. */
static void read_bad_indices(struct xop_group *group) {
    const int32_t operand = group->op->pass[group->pass].index_operand;
    for (uint32_t i = 0; operand >= 0 && i < group->ncalls; i++) {
        const struct xop_tensor *index = &group->calls[i].in[operand];
        struct xop_bad_index *bad = group->calls[i].bad_index;
        if (bad && bad->at < (uint64_t)xop_elements(index))
            bad->value = xop_index(index->dtype, index->data, bad->at);
    }
}

static void run_group(struct xop_group *group, const struct xop_host *host) {
    struct xop_launch launch = {.host = host,
                                .pass = group->pass,
                                .ncalls = group->ncalls,
                                .calls = group->calls,
                                .plans = group->plans};
    uint64_t begin = now_ns();

    copy_keep_inputs(group, host);
    group->status = group->op->pass[group->pass].launch(&launch, &group->error);
    if (group->status == XOP_OK)
        copy_keep_outputs(group, host);
    group->run_ns = now_ns() - begin;
    read_bad_indices(group);
    if (group->status == XOP_OK)
        group->error.status = XOP_OK;
    else if (group->error.status != group->status)
        xop_fail(&group->error, group->status, "%s failed without giving a reason",
                 group->op->name);
}

/* The eventfd is written once for all that poll will return together. */
static void done(struct lane *lane) {
    struct xop_backend *backend = lane->backend;
    const uint64_t one = 1;
    bool first;

    pthread_mutex_lock(&backend->lock);
    backend->done[backend->ndone++] = lane->group->lane;
    first = !backend->signalled;
    backend->signalled = true;
    /* Inside the lock, so that poll never clears a signal before it comes. The counter cannot be
     * full, so this neither blocks nor fails. */
    if (first && write(backend->event, &one, sizeof one) != sizeof one)
        backend->signalled = false;
    pthread_mutex_unlock(&backend->lock);
}

static void lane_run(struct pool_task *task) {
    struct lane *lane = (struct lane *)task;
    run_group(lane->group, &lane->backend->pool_host.host);
    done(lane);
}

static enum xop_status check(const struct xop_backend *backend, const struct xop_group *group,
                             struct xop_error *error) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    uint32_t most = signature->max_group ? signature->max_group : 1;

    if (!signature->launch)
        return xop_fail(error, XOP_UNIMPLEMENTED, "%s has no %s on the CPU", group->op->name,
                        group->pass == XOP_FORWARD ? "forward" : "backward");
    if (group->ncalls == 0 || group->ncalls > most)
        return xop_fail(error, XOP_INTERNAL, "a group of %u calls of %s, which takes 1 to %u",
                        group->ncalls, group->op->name, most);
    if (backend->nfree == 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "all %u lanes of the CPU backend are busy",
                        backend->nlanes);
    return XOP_OK;
}

/* Gives every call of the group its workspace. */
static enum xop_status give_workspace(struct lane *lane, struct xop_group *group,
                                      struct xop_error *error) {
    const uint64_t align = 256;
    uint64_t total = 0, at = 0;

    for (uint32_t i = 0; i < group->ncalls; i++)
        if (group->plans[i]->workspace_bytes > SIZE_MAX / 4 - total)
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "the workspace of %s is too large",
                            group->op->name);
        else
            total += (group->plans[i]->workspace_bytes + align - 1) / align * align;
    if (total > lane->workspace_bytes) {
        free(lane->workspace);
        lane->workspace = aligned_alloc(align, total);
        lane->workspace_bytes = lane->workspace ? total : 0;
        if (!lane->workspace)
            return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                            "no memory for %llu bytes of workspace of %s",
                            (unsigned long long)total, group->op->name);
    }
    for (uint32_t i = 0; i < group->ncalls; i++) {
        uint64_t bytes = group->plans[i]->workspace_bytes;
        group->calls[i].workspace = bytes ? (char *)lane->workspace + at : NULL;
        at += (bytes + align - 1) / align * align;
    }
    return XOP_OK;
}

static enum xop_status cpu_submit(struct xop_backend *backend, struct xop_group *group,
                                  struct xop_error *error) {
    enum xop_status status = check(backend, group, error);
    struct lane *lane = backend->lane;
    uint64_t work = 0;

    if (status != XOP_OK)
        return status;
    while (lane->group)
        lane++;
    status = give_workspace(lane, group, error);
    if (status != XOP_OK)
        return status;
    backend->nfree--;
    lane->task.run = lane_run;
    lane->backend = backend;
    lane->group = group;
    group->lane = (uint32_t)(lane - backend->lane);
    group->copy_ns = group->run_ns = 0;
    memset(&group->error, 0, sizeof group->error);
    for (uint32_t i = 0; i < group->ncalls && work <= INLINE_BYTES; i++)
        work += effort(group, i);
    if (work > INLINE_BYTES) {
        pool_add(backend->pool, &lane->task);
    } else {
        run_group(group, &backend->inline_host.host);
        done(lane);
    }
    return XOP_OK;
}

static enum xop_status cpu_poll(struct xop_backend *backend, struct xop_group **groups,
                                uint32_t max, uint32_t *count, struct xop_error *error) {
    uint64_t ignored;
    uint32_t n;

    (void)error;
    pthread_mutex_lock(&backend->lock);
    n = backend->ndone < max ? backend->ndone : max;
    for (uint32_t i = 0; i < n; i++) {
        struct lane *lane = &backend->lane[backend->done[i]];
        groups[i] = lane->group;
        lane->group = NULL;
    }
    backend->ndone -= n;
    memmove(backend->done, backend->done + n, backend->ndone * sizeof backend->done[0]);
    /* Left readable while groups remain that did not fit. */
    if (backend->signalled && backend->ndone == 0)
        backend->signalled = read(backend->event, &ignored, sizeof ignored) != sizeof ignored;
    pthread_mutex_unlock(&backend->lock);
    backend->nfree += n;
    *count = n;
    return XOP_OK;
}

static int cpu_descriptor(struct xop_backend *backend) { return backend->event; }

static const struct xop_backend_api api = {
    .abi = XOP_BACKEND_ABI,
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .library = cpu_library,
    .copy = cpu_copy,
    .register_host = cpu_register,
    .unregister_host = cpu_unregister,
    .memory_make = cpu_memory_make,
    .memory_import = cpu_memory_import,
    .memory_drop = cpu_memory_drop,
    .probe = cpu_probe,
    .free_lanes = cpu_free_lanes,
    .submit = cpu_submit,
    .poll = cpu_poll,
    .descriptor = cpu_descriptor,
};

XOP_LIBRARY_EXPORT const struct xop_backend_api *xop_backend_entry(uint32_t abi) {
    return abi == XOP_BACKEND_ABI ? &api : NULL;
}
