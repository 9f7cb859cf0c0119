#include "outbox.h"

#include <string.h>

#define ALIGNMENT 64u
#define GUARD_BYTE 0xa5
#define POISON_BYTE 0xff /* a NaN in every floating type, -1 in every integer */

enum xop_status outbox_open(struct outbox *outbox, void *base, uint64_t bytes,
                            struct xop_error *error) {
    outbox->base = base;
    outbox->bytes = bytes;
    outbox->small_bytes = bytes / 8 / ARENA_GRANULE * ARENA_GRANULE;
    outbox->small = arena_new(outbox->small_bytes);
    outbox->large = arena_new(bytes - outbox->small_bytes);
    if (!outbox->small || !outbox->large)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory for the outbox");
    return XOP_OK;
}

void outbox_close(struct outbox *outbox) {
    arena_free(outbox->small);
    arena_free(outbox->large);
    outbox->small = outbox->large = NULL;
}

static uint64_t output_bytes(const struct task *task, uint32_t i) {
    uint64_t bytes = 0;
    if (task->in_block[i])
        xop_tensor_bytes(&task->out[i], &bytes); /* checked when the task was taken in */
    return bytes;
}

/* Where output i begins in the block, counted on; false where the sum is more than any memory. */
static bool place(const struct task *task, uint32_t i, uint64_t *at, uint64_t *end) {
    uint64_t bytes = output_bytes(task, i), guard = task->check ? OUTBOX_GUARD : 0;
    *at = *end + guard;
    if (__builtin_add_overflow(*at, ALIGNMENT - 1, at))
        return false;
    *at &= ~(uint64_t)(ALIGNMENT - 1);
    return !__builtin_add_overflow(*at, bytes, end);
}

/* Bytes of the whole block; 0 where nothing is to be stored; false where that overflows. */
static bool total_bytes(const struct task *task, uint64_t *total) {
    const struct xop_signature *signature = task_signature(task);
    uint64_t end = 0, at;
    bool any = false;
    for (uint32_t i = 0; i < signature->nout; i++) {
        if (output_bytes(task, i) == 0)
            continue;
        any = true;
        if (!place(task, i, &at, &end))
            return false;
    }
    *total = any ? end + (task->check ? OUTBOX_GUARD : 0) : 0;
    return true;
}

static void format_bytes(uint64_t bytes, char *out, size_t capacity) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(out, capacity, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

enum xop_status outbox_check(const struct outbox *outbox, struct task *task,
                             struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    uint64_t total = 0;
    uint32_t largest = 0;
    char needs[32], has[32];
    if (total_bytes(task, &total) && total <= arena_bytes(outbox->large)) {
        task->block_needed = total;
        return XOP_OK;
    }
    for (uint32_t i = 0; i < signature->nout; i++)
        if (output_bytes(task, i) > output_bytes(task, largest))
            largest = i;
    format_bytes(output_bytes(task, largest), needs, sizeof needs);
    format_bytes(arena_bytes(outbox->large), has, sizeof has);
    return xop_fail(error, XOP_RESOURCE_EXHAUSTED,
                    "output %s needs %s, and this server's results may have %s (device.outbox)",
                    signature->out[largest].name, needs, has);
}

bool outbox_take(struct outbox *outbox, struct task *task, bool small_only) {
    const struct xop_signature *signature = task_signature(task);
    uint64_t total = task->block_needed, offset, end = 0, at = 0;
    task->block_bytes = 0;
    if (total == 0)
        return true;
    if (total <= OUTBOX_SMALL && arena_take(outbox->small, total, &offset))
        task->block_offset = offset;
    else if (!small_only && arena_take(outbox->large, total, &offset))
        task->block_offset = outbox->small_bytes + offset;
    else
        return false;
    task->block_bytes = total;
    unsigned char *block = outbox->base + task->block_offset;
    if (task->check)
        memset(block, GUARD_BYTE, total);
    for (uint32_t i = 0; i < signature->nout; i++) {
        uint64_t bytes = output_bytes(task, i);
        if (bytes == 0 || !place(task, i, &at, &end))
            continue;
        task->out[i].data = block + at;
        if (task->check)
            memset(block + at, POISON_BYTE, bytes);
    }
    return true;
}

bool outbox_give(struct outbox *outbox, uint64_t offset) {
    return offset < outbox->small_bytes ? arena_give(outbox->small, offset)
                                        : arena_give(outbox->large, offset - outbox->small_bytes);
}

/* The first byte in [from, to) of a block that is no longer as it was filled, or `to`. */
static uint64_t first_touched(const unsigned char *block, uint64_t from, uint64_t to) {
    while (from < to && block[from] == GUARD_BYTE)
        from++;
    return from;
}

enum xop_status outbox_verify(const struct outbox *outbox, const struct task *task,
                              struct xop_error *error) {
    const struct xop_signature *signature = task_signature(task);
    const unsigned char *block = outbox->base + task->block_offset;
    uint64_t checked = 0, end = 0, at = 0, touched;
    uint32_t last = 0;
    if (!task->check || task->block_bytes == 0)
        return XOP_OK;
    for (uint32_t i = 0; i < signature->nout; i++) {
        if (output_bytes(task, i) == 0 || !place(task, i, &at, &end))
            continue;
        touched = first_touched(block, checked, at);
        if (touched < at) {
            bool behind = checked > 0 && touched - checked < at - touched;
            return xop_fail(
                error, XOP_INTERNAL, "operator %s wrote outside its output: %llu bytes %s %s",
                task->op->name, (unsigned long long)(behind ? touched - checked + 1 : at - touched),
                behind ? "behind the end of" : "before the start of",
                signature->out[behind ? last : i].name);
        }
        checked = end;
        last = i;
    }
    touched = first_touched(block, checked, task->block_bytes);
    if (touched < task->block_bytes)
        return xop_fail(error, XOP_INTERNAL,
                        "operator %s wrote outside its output: %llu bytes behind the end of %s",
                        task->op->name, (unsigned long long)(touched - checked + 1),
                        signature->out[last].name);
    return XOP_OK;
}
