/*
 * CUDA as a backend (kernels/backend.h). A lane is a pair of streams for one group. Everything is
 * enqueued by submit; poll asks the event behind each group's last store, so the loop neither waits
 * nor needs a thread. A group that takes long also writes an eventfd when it is done, so that the
 * loop may sleep meanwhile; short ones do not, since that would take longer than they do.
 *
 * When the device is lost, every event says so; the process has to end then. close frees nothing of
 * CUDA's in that case, nor while a group is in flight, since that would wait for it.
 */
#include "kernels/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/binary.h"
#include "kernels/cast.h"
#include "kernels/copy.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/fold.h"
#include "kernels/cuda/helper.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/lt.h"
#include "kernels/cuda/planes.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/state.h"
#include "kernels/cuda/where.h"
#include "kernels/cuda/window.h"
#include "kernels/fold.h"
#include "kernels/linear.h"
#include "kernels/loss.h"
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

#define DEFAULT_LANES 4u
#define MAX_CALLS 1024u /* of a group, whatever an operator says */
/* Blocks of 256 threads for launches that read one operand across the bus, fewer for more operands:
 * 160 KiB of reads under way keep it busy. More would only wait in its queue, and what others read
 * across it would wait behind them. XOP_CUDA_DIRECT_BLOCKS makes it as many blocks whatever they
 * read, for measuring. */
#define DIRECT_BLOCKS 10u
/* Groups that move no more go on the stream of high priority. */
#define URGENT_BYTES (UINT64_C(1) << 20)
/* Groups that move more, which takes 2 ms and up, say when they are done. That makes them 40 us
 * longer, and a loop that waits for less is awake anyway. */
#define SIGNAL_BYTES (UINT64_C(128) << 20)

static const struct registry_launch table[] = {
    {&square_bias_declaration, square_bias_cuda_forward, square_bias_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&sigmoid_declaration, sigmoid_cuda_forward, sigmoid_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
    {&sigmoid_complement_declaration, sigmoid_complement_cuda_forward,
     sigmoid_complement_cuda_backward, LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&bose_einstein_declaration, bose_einstein_cuda_forward, bose_einstein_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&linear_workspace_declaration, linear_cuda_forward, linear_cuda_backward,
     LAUNCH_CUDA_MAX_PRODUCTS, LAUNCH_CUDA_MAX_PRODUCTS},
    {&matmul_workspace_declaration, matmul_cuda_forward, matmul_cuda_backward,
     LAUNCH_CUDA_MAX_PRODUCTS, LAUNCH_CUDA_MAX_PRODUCTS},
    {&sgd_declaration, sgd_cuda_forward, NULL, LAUNCH_CUDA_MAX_GROUP, 0},
    {&adam_declaration, adam_cuda_forward, NULL, LAUNCH_CUDA_MAX_GROUP, 0},
    {&adamw_declaration, adamw_cuda_forward, NULL, LAUNCH_CUDA_MAX_GROUP, 0},
    {&cast_declaration, cast_cuda_forward, cast_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
#define UNARY(name, ...)                                                                           \
    {&unary_declarations[UNARY_##name], unary_##name##_cuda_forward, unary_##name##_cuda_backward, \
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
#include "kernels/unary.def"
#define BINARY(name, ...)                                                                          \
    {&binary_terms_declarations[BINARY_##name], binary_##name##_cuda_forward,                      \
     binary_##name##_cuda_backward, LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
#include "kernels/binary.def"
    {&softmax_declaration, softmax_cuda_forward, softmax_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
    {&log_softmax_declaration, log_softmax_cuda_forward, log_softmax_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&layer_norm_declaration, layer_norm_cuda_forward, layer_norm_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&rms_norm_declaration, rms_norm_cuda_forward, rms_norm_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
    {&group_norm_declaration, group_norm_cuda_forward, group_norm_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&batch_norm_declaration, batch_norm_cuda_forward, batch_norm_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&max_pool2d_declaration, max_pool2d_cuda_forward, max_pool2d_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&avg_pool2d_declaration, avg_pool2d_cuda_forward, avg_pool2d_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&upsample_declaration, upsample_cuda_forward, upsample_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
    {&rotary_embedding_declaration, rotary_embedding_cuda_forward, rotary_embedding_cuda_backward,
     LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP},
    {&attention_declaration, attention_cuda_forward, attention_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
#define FOLD(name, kind)                                                                           \
    {                                                                                              \
        &fold_declarations[kind], name##_cuda_forward, name##_cuda_backward,                       \
            LAUNCH_CUDA_MAX_GROUP, LAUNCH_CUDA_MAX_GROUP                                           \
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
        &name##_declaration, name##_cuda_forward, name##_cuda_backward, LAUNCH_CUDA_MAX_GROUP,     \
            LAUNCH_CUDA_MAX_GROUP                                                                  \
    }
    LOSS(mse_loss),
    LOSS(binary_cross_entropy_with_logits),
    LOSS(cross_entropy),
    LOSS(nll_loss),
    {&where_declaration, where_cuda_forward, where_cuda_backward, LAUNCH_CUDA_MAX_GROUP,
     LAUNCH_CUDA_MAX_GROUP},
};

/* ---- Opening and closing ---- */

typedef enum xop_status (*preload_fn)(struct xop_error *error);

static enum xop_status preload(struct xop_error *error) {
    static const preload_fn families[] = {
        copy_preload,      probe_preload,         square_bias_preload,    activation_preload,
        cast_preload,      unary_forward_preload, unary_backward_preload, binary_preload,
        product_preload,   softmax_preload,       row_norm_preload,       fold_preload,
        optimizer_preload, planes_preload,        window_preload,         upsample_preload,
        rotary_preload,    attention_preload,     loss_pointwise_preload, cross_entropy_preload,
        nll_loss_preload,  where_preload};
    enum xop_status status = XOP_OK;
    struct xop_error why = {XOP_OK, ""};

    for (size_t i = 0; i < sizeof families / sizeof *families && status == XOP_OK; i++)
        status = families[i](&why);
    if (status != XOP_OK)
        return xop_fail(error, XOP_UNAVAILABLE,
                        "the kernels cannot be loaded; this build may hold no code for the "
                        "device's architecture: %.300s",
                        why.message);
    return XOP_OK;
}

/* A pool of our own keeps what it has, instead of giving it back at every synchronisation. */
static enum xop_status open_pool(struct xop_backend *backend, struct xop_error *error) {
    struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = backend->gpu.ordinal},
    };
    uint64_t keep = UINT64_MAX;
    enum xop_status status;

    if (!backend->gpu.has_pools)
        return XOP_OK;
    status = CHECK_CUDA(error, cudaMemPoolCreate(&backend->pool, &properties));
    if (status == XOP_OK)
        status = CHECK_CUDA(
            error, cudaMemPoolSetAttribute(backend->pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return status;
}

/* 0: as they need. */
static uint32_t fixed_blocks(void) {
    const char *text = getenv("XOP_CUDA_DIRECT_BLOCKS");
    char *end = NULL;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    return text && *text && !*end && n <= 1000000 ? (uint32_t)n : 0;
}

/* For a launch that reads so many operands of each call across the bus. */
static uint32_t blocks_for(const struct xop_backend *backend, uint32_t reads) {
    if (backend->fixed_blocks > 0)
        return backend->fixed_blocks;
    return reads > 1 ? (DIRECT_BLOCKS + reads - 1) / reads : DIRECT_BLOCKS;
}

static void cuda_close(struct xop_backend *backend) {
    struct xop_error ignored;
    bool usable;

    if (!backend)
        return;
    usable = backend->nbusy == 0 && !backend->lost && gpu_enter(&backend->gpu, &ignored) == XOP_OK;
    for (uint32_t i = 0; i < backend->nlanes; i++)
        lane_close(&backend->lane[i], usable);
    if (usable && backend->bus) {
        cudaStreamSynchronize(backend->bus); /* a host function may still be on its way */
        cudaStreamDestroy(backend->bus);
    }
    if (usable)
        helper_close(backend);
    ranges_close(&backend->ranges);
    memory_close(&backend->memory, usable);
    if (usable && backend->pool)
        cudaMemPoolDestroy(backend->pool);
    /* A host function may be about to write it as long as a group is in flight. */
    if (backend->event >= 0 && backend->nbusy == 0)
        close(backend->event);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

static enum xop_status cuda_open(const struct xop_backend_config *config, struct xop_backend **out,
                                 struct xop_error *error) {
    struct xop_backend *backend = calloc(1, sizeof *backend);
    uint32_t lanes = config->lanes ? config->lanes : DEFAULT_LANES;
    enum xop_status status;

    *out = NULL;
    if (!backend)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for the CUDA backend");
    backend->fixed_blocks = fixed_blocks();
    backend->copy_blocks = blocks_for(backend, 1);
    backend->event = -1;
    status = gpu_open(config->device, &backend->gpu, error);
    if (status != XOP_OK) {
        free(backend); /* there is no context to free anything in */
        return status;
    }
    pthread_mutex_init(&backend->lock, NULL);
    backend->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (backend->event < 0)
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
    if (status == XOP_OK)
        status = preload(error);
    if (status == XOP_OK)
        status = open_pool(backend, error);
    if (status == XOP_OK)
        status = memory_open(&backend->memory, &backend->gpu, error);
    if (status == XOP_OK)
        status = lane_make_bus(&backend->bus, error);
    while (status == XOP_OK && backend->nlanes < lanes && backend->nlanes < STATE_MAX_LANES)
        status = lane_open(&backend->lane[backend->nlanes++], backend->pool, error);
    if (status == XOP_OK) {
        lt_begin(&backend->gpu);
        *out = backend;
    } else {
        cuda_close(backend);
    }
    return status;
}

static void cuda_info(struct xop_backend *backend, struct xop_device_info *info) {
    struct xop_error ignored;
    size_t available = 0, total = 0;
    bool pageable;

    pthread_mutex_lock(&backend->lock);
    pageable = ranges_has_pageable(&backend->ranges);
    pthread_mutex_unlock(&backend->lock);
    memset(info, 0, sizeof *info);
    snprintf(info->backend, sizeof info->backend, "cuda");
    snprintf(info->device, sizeof info->device, "%s", backend->gpu.name);
    snprintf(info->runtime, sizeof info->runtime, "%.40s%s", backend->gpu.runtime,
             pageable ? ", inbox not pinned" : "");
    snprintf(info->pci, sizeof info->pci, "%s", backend->gpu.pci);
    info->lanes = backend->nlanes;
    if (backend->lost || gpu_enter(&backend->gpu, &ignored) != XOP_OK)
        return;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        cudaGetLastError(); /* not a later call's failure */
    info->memory_free = available;
    info->memory_total = total;
}

static const struct xop_library *cuda_library(void) {
    return registry_library("cuda", table, (uint32_t)(sizeof table / sizeof *table));
}

static const struct xop_op *cuda_copy(void) {
    static const struct registry_launch launch = {&copy_declaration, copy_cuda_forward, NULL,
                                                  LAUNCH_CUDA_MAX_GROUP, 0};
    static struct xop_op op;
    if (!op.name)
        registry_bind(&op, &launch);
    return &op;
}

/* ---- A lost device ---- */

/* The device is lost: says how that showed and to whom it may be due. */
static enum xop_status fault(struct xop_backend *backend, const char *how,
                             const struct xop_group *last, struct xop_error *error) {
    char running[240] = "";
    size_t used = 0;

    backend->lost = true;
    for (uint32_t i = 0; i <= backend->nlanes && used < sizeof running; i++) {
        const struct xop_group *group = i < backend->nlanes ? backend->lane[i].group : last;
        if (group)
            used += (size_t)snprintf(running + used, sizeof running - used, "%s%s %s (%u calls)",
                                     used ? ", " : "", group->op->name,
                                     group->pass == XOP_FORWARD ? "forward" : "backward",
                                     group->ncalls);
    }
    return xop_fail(error, XOP_DEVICE_FAULT, "the device was lost while it ran %s: %.220s", running,
                    how);
}

/* ---- Submitting ---- */

static uint32_t cuda_free_lanes(struct xop_backend *backend) {
    return backend->nlanes - backend->nbusy;
}

static enum xop_status check(const struct xop_backend *backend, const struct xop_group *group,
                             struct xop_error *error) {
    const struct xop_signature *signature = &group->op->pass[group->pass];
    uint32_t most = signature->max_group ? signature->max_group : 1;

    if (backend->lost)
        return xop_fail(error, XOP_DEVICE_FAULT, "the device was lost before");
    if (!signature->launch)
        return xop_fail(error, XOP_UNIMPLEMENTED, "%s has no %s on CUDA", group->op->name,
                        group->pass == XOP_FORWARD ? "forward" : "backward");
    if (group->ncalls == 0 || group->ncalls > most)
        return xop_fail(error, XOP_INTERNAL, "a group of %u calls of %s, which takes 1 to %u",
                        group->ncalls, group->op->name, most);
    if (group->ncalls > MAX_CALLS)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "a group of %u calls; CUDA takes up to %u",
                        group->ncalls, MAX_CALLS);
    if (backend->nbusy == backend->nlanes)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "all %u lanes of the CUDA backend are busy",
                        backend->nlanes);
    return XOP_OK;
}

static uint64_t bytes_of(const struct xop_group *group) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < group->ncalls; i++)
        if (__builtin_add_overflow(bytes, group->plans[i]->bytes, &bytes))
            return UINT64_MAX;
    return bytes;
}

/* Device memory for the group; where it is short, what idle lanes hold is given back first. */
static enum xop_status reserve(struct xop_backend *backend, struct lane *lane,
                               struct xop_error *error) {
    uint64_t bytes = lane->stage.bytes;
    enum xop_status status = lane_reserve(lane, bytes, error);

    if (status != XOP_RESOURCE_EXHAUSTED)
        return status;
    state_give_back_idle(backend, lane->stream);
    return lane_reserve(lane, bytes, error);
}

/* Runs on a thread of CUDA's, where CUDA must not be called. */
static void CUDART_CB signal_done(void *arg) {
    const uint64_t one = 1;
    ssize_t written = write((int)(intptr_t)arg, &one, sizeof one);
    (void)written; /* the counter cannot be full */
}

/* The operator's launch. Its kernels may have failed to start without its noticing. */
static enum xop_status launch(struct xop_backend *backend, struct lane *lane,
                              const struct xop_group *group, struct xop_error *error) {
    struct xop_host host = {.multiprocessors = backend->gpu.multiprocessors,
                            .compute_capability = backend->gpu.compute_capability,
                            .max_blocks =
                                lane->stage.direct ? blocks_for(backend, lane->stage.reads) : 0};
    struct xop_launch what = {.host = &host,
                              .pass = group->pass,
                              .ncalls = group->ncalls,
                              .calls = lane->stage.calls,
                              .plans = group->plans,
                              .stream = lane->stream};
    enum xop_status status = group->op->pass[group->pass].launch(&what, error);
    cudaError_t code = cudaGetLastError();

    if (status == XOP_OK && code != cudaSuccess)
        return xop_fail(error, check_status(code), "the launch of %s failed: %s (%s)",
                        group->op->name, cudaGetErrorString(code), cudaGetErrorName(code));
    if (status != XOP_OK && error->status != status)
        return xop_fail(error, status, "%s failed without giving a reason", group->op->name);
    return status;
}

/* Enqueues everything but the end. */
static enum xop_status enqueue(struct xop_backend *backend, struct lane *lane,
                               const struct xop_group *group, struct xop_error *error) {
    uint32_t n = group->ncalls, blocks = backend->copy_blocks;
    bool in = stage_has_in(&lane->stage), out = stage_has_out(&lane->stage);
    enum xop_status status = CHECK_CUDA(error, cudaEventRecord(lane->begin, lane->stream));

    if (status == XOP_OK && in)
        status = stage_copy_in(&lane->stage, n, blocks, lane->stream, error);
    if (status == XOP_OK && in)
        status = CHECK_CUDA(error, cudaEventRecord(lane->ready, lane->stream));
    if (status == XOP_OK)
        status = launch(backend, lane, group, error);
    if (status == XOP_OK && out)
        status = CHECK_CUDA(error, cudaEventRecord(lane->done, lane->stream));
    if (status == XOP_OK && out)
        status = stage_copy_out(&lane->stage, n, blocks, lane->stream, error);
    return status;
}

/* Where something failed after the group had begun, kernels may be writing its outputs: then it is
 * taken all the same, and failed when the stream is through. */
static enum xop_status start(struct xop_backend *backend, struct lane *lane,
                             struct xop_group *group, struct xop_error *error) {
    bool signals = bytes_of(group) > SIGNAL_BYTES;
    struct xop_error why;

    xop_error_clear(&why);
    lane->status = enqueue(backend, lane, group, &why);
    if (lane->status != XOP_OK)
        lane->error = why;
    if (lane->status == XOP_DEVICE_FAULT) {
        *error = why;
        return XOP_DEVICE_FAULT;
    }
    if (CHECK_CUDA(error, cudaEventRecord(lane->end, lane->stream)) != XOP_OK)
        return XOP_DEVICE_FAULT; /* its end would never be seen */
    lane->signals = signals && cudaLaunchHostFunc(lane->stream, signal_done,
                                                  (void *)(intptr_t)backend->event) == cudaSuccess;
    if (signals && !lane->signals)
        cudaGetLastError(); /* the loop will have to ask; not a later call's failure */
    return XOP_OK;
}

/* From here on, until leave, the memory that the group uses stays. */
static enum xop_status enter(struct xop_backend *backend, struct lane *lane,
                             struct xop_group *group, struct xop_error *error) {
    enum xop_status status;
    pthread_mutex_lock(&backend->lock);
    lane->group = group;
    status = stage_plan(&lane->stage, &backend->ranges, group, error);
    pthread_mutex_unlock(&backend->lock);
    return status;
}

static void leave(struct xop_backend *backend, struct lane *lane) {
    pthread_mutex_lock(&backend->lock);
    lane->group = NULL;
    pthread_mutex_unlock(&backend->lock);
}

static enum xop_status cuda_submit(struct xop_backend *backend, struct xop_group *group,
                                   struct xop_error *error) {
    enum xop_status status = check(backend, group, error);
    struct lane *lane = backend->lane;

    if (status == XOP_OK)
        status = gpu_enter(&backend->gpu, error);
    if (status != XOP_OK)
        return status;
    while (lane->group)
        lane++;
    lane->stream = bytes_of(group) <= URGENT_BYTES ? lane->urgent : lane->normal;
    status = stage_reserve(&lane->stage, group, error);
    if (status == XOP_OK)
        status = enter(backend, lane, group, error);
    if (status == XOP_OK && lane->stream == lane->normal && lane->stage.direct &&
        lane->stage.bytes == 0)
        lane->stream = backend->bus;
    if (status == XOP_OK)
        status = reserve(backend, lane, error);
    if (status == XOP_OK) {
        stage_place(&lane->stage, group, lane->memory);
        status = start(backend, lane, group, error);
    }
    if (status != XOP_OK)
        leave(backend, lane);
    if (status == XOP_DEVICE_FAULT) {
        struct xop_error how = *error;
        return fault(backend, how.message, group, error);
    }
    if (status != XOP_OK)
        return status;
    memset(&group->error, 0, sizeof group->error);
    group->copy_ns = group->run_ns = 0;
    group->lane = (uint32_t)(lane - backend->lane);
    backend->nbusy++;
    backend->nsignalling += lane->signals;
    backend->signals_coming += lane->signals;
    return XOP_OK;
}

/* ---- Finishing ---- */

static void finish(struct xop_backend *backend, struct lane *lane) {
    struct xop_group *group = lane->group;

    group->status = lane->status;
    if (group->status == XOP_OK)
        group->status = lane_times(lane, &group->copy_ns, &group->run_ns, &group->error);
    else
        group->error = lane->error;
    if (group->status == XOP_OK)
        group->status = stage_finish(&lane->stage, group, lane->stream, &group->error);
    lane->stream = lane->normal; /* where there is nothing to wait for now */
    leave(backend, lane);
    backend->nbusy--;
    backend->nsignalling -= lane->signals;
}

static void read_signals(struct xop_backend *backend) {
    uint64_t n = 0;
    if (backend->signals_coming > 0 && read(backend->event, &n, sizeof n) == sizeof n)
        backend->signals_coming -= n < backend->signals_coming ? n : backend->signals_coming;
}

static enum xop_status cuda_poll(struct xop_backend *backend, struct xop_group **groups,
                                 uint32_t max, uint32_t *count, struct xop_error *error) {
    enum xop_status status = XOP_OK;
    uint32_t found = 0;

    *count = 0;
    if (backend->lost)
        return xop_fail(error, XOP_DEVICE_FAULT, "the device was lost before");
    read_signals(backend);
    if (backend->nbusy == 0)
        return XOP_OK;
    status = gpu_enter(&backend->gpu, error);
    for (uint32_t i = 0; i < backend->nlanes && found < max && status == XOP_OK; i++) {
        struct lane *lane = &backend->lane[i];
        cudaError_t code;
        if (!lane->group)
            continue;
        code = cudaEventQuery(lane->end);
        if (code == cudaErrorNotReady)
            cudaGetLastError(); /* not a later call's failure */
        else if (code != cudaSuccess) {
            struct xop_error how;
            check_cuda(code, "cudaEventQuery", __FILE__, __LINE__, &how);
            return fault(backend, how.message, NULL, error);
        } else {
            groups[found++] = lane->group;
            finish(backend, lane);
        }
    }
    *count = found;
    return status;
}

static int cuda_descriptor(struct xop_backend *backend) {
    return backend->nsignalling == backend->nbusy ? backend->event : -1;
}

static const struct xop_backend_api api = {
    .abi = XOP_BACKEND_ABI,
    .name = "cuda",
    .apart = true,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .library = cuda_library,
    .copy = cuda_copy,
    .register_host = helper_register_host,
    .unregister_host = helper_unregister_host,
    .memory_make = helper_memory_make,
    .memory_import = helper_memory_import,
    .memory_drop = helper_memory_drop,
    .probe = helper_probe,
    .free_lanes = cuda_free_lanes,
    .submit = cuda_submit,
    .poll = cuda_poll,
    .descriptor = cuda_descriptor,
};

XOP_LIBRARY_EXPORT const struct xop_backend_api *xop_backend_entry(uint32_t abi) {
    return abi == XOP_BACKEND_ABI ? &api : NULL;
}
