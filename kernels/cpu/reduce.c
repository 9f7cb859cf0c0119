#include "kernels/cpu/reduce.h"

#include <string.h>

#include "kernels/cpu/launch.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/walk.h"

/* The work is cut into units: some neighbouring outputs (a strip) times one piece of their terms.
 * Where the innermost axis is kept, a strip is a stretch of it and whole rows are added to it;
 * where it is reduced, each output of the strip is the sum of contiguous runs. */
#define STRIP 256
#define SHORT_RUN 16     /* terms of a run that are added one after the other */
#define ROWS_A_BLOCK 256 /* rows that are added up before they join the strip's total */

#define MADE 1024 /* terms that are computed at once, where they are */

struct strip;

struct work {
    const struct reduce *reduce;
    enum xop_dtype dtype; /* of the terms */
    const struct loops *loops;
    size_t size;
    /* Adds the terms of a strip's outputs to sum. */
    void (*sum)(const struct work *work, const struct strip *strip, const double *factor,
                double *sum);
    int64_t inner;           /* extent of the innermost kept axis, or outputs where it is reduced */
    int64_t strips_an_inner; /* strips that cover inner */
    struct shape_dim kept[XOP_MAX_RANK], axis[XOP_MAX_RANK];
    int64_t run;           /* extent of the innermost reduced axis, where runs are summed; else 1 */
    uint32_t nkept, naxis; /* dimensions outside inner and run */
};

struct strip {
    int64_t output, count; /* the outputs it covers */
    int64_t first, last;   /* the terms [first, last) of each */
    uint32_t piece;
};

static void dims_of(struct shape_dim *dim, const struct shape_axis *axis, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        dim[i] = (struct shape_dim){axis[i].size, axis[i].stride, 0};
}

/* Terms of the full array from an offset on: where they lie or, computed, in the buffer. */
static const void *terms_at(const struct work *work, int64_t offset, int64_t n, void *buffer) {
    if (!work->reduce->make)
        return (const char *)work->reduce->full + (size_t)offset * work->size;
    work->reduce->make(work->reduce->arg, offset, n, buffer);
    return buffer;
}

static void load_factors(const struct work *work, const struct strip *strip, double *factor) {
    const struct reduce *reduce = work->reduce;
    if (reduce->factor)
        loops_load(work->loops, reduce->dtype, factor,
                   (const char *)reduce->factor + (size_t)strip->output * work->size, strip->count);
    else
        for (int64_t i = 0; i < strip->count; i++)
            factor[i] = 1;
}

static void finish(const struct work *work, int64_t output, double *sum, int64_t count) {
    const struct reduce *reduce = work->reduce;
    for (int64_t i = 0; i < count; i++)
        sum[i] *= reduce->scale;
    loops_store(work->loops, reduce->dtype, (char *)reduce->out + (size_t)output * work->size, sum,
                count);
}

/* Adds rows of the full array to the strip. */
static void sum_rows(const struct work *work, const struct strip *strip, const double *factor,
                     double *sum) {
    int64_t outer = strip->output / work->inner, within = strip->output % work->inner;
    double block[STRIP], made[STRIP];
    struct walk kept, axis;

    walk_start(&kept, work->kept, work->nkept, outer);
    walk_start(&axis, work->axis, work->naxis, strip->first);
    for (int64_t t = strip->first; t < strip->last;) {
        int64_t rows = strip->last - t < ROWS_A_BLOCK ? strip->last - t : ROWS_A_BLOCK;
        memset(block, 0, (size_t)strip->count * sizeof *block);
        for (int64_t r = 0; r < rows; r++, walk_next(&axis))
            loops_add(work->loops, work->dtype, block,
                      terms_at(work, kept.x + within + axis.x, strip->count, made), factor,
                      strip->count);
        for (int64_t i = 0; i < strip->count; i++)
            sum[i] += block[i];
        t += rows;
    }
}

/* Sums the strip's outputs one after the other, a contiguous run at a time. */
static void sum_runs(const struct work *work, const struct strip *strip, const double *factor,
                     double *sum) {
    struct walk kept, start, axis;
    double made[MADE];

    walk_start(&kept, work->kept, work->nkept, strip->output);
    walk_start(&start, work->axis, work->naxis, strip->first / work->run);
    for (int64_t i = 0; i < strip->count; i++, walk_next(&kept)) {
        int64_t within = strip->first % work->run;
        axis = start;
        for (int64_t t = strip->first; t < strip->last;) {
            int64_t n = work->run - within;
            if (n > strip->last - t)
                n = strip->last - t;
            if (work->reduce->make && n > MADE)
                n = MADE;
            sum[i] += loops_sum(work->loops, work->dtype,
                                terms_at(work, kept.x + axis.x + within, n, made), factor[i], n);
            t += n;
            within += n;
            if (within < work->run)
                continue;
            within = 0;
            walk_next(&axis);
        }
    }
}

/* The same where each output's terms are few and lie next to each other, and so do the outputs'. */
static void sum_short_runs(const struct work *work, const struct strip *strip, const double *factor,
                           double *sum) {
    double terms[STRIP * SHORT_RUN], made[STRIP * SHORT_RUN];
    int64_t n = strip->count * work->run;

    loops_load(work->loops, work->dtype, terms, terms_at(work, strip->output * work->run, n, made),
               n);
    for (int64_t i = 0; i < strip->count; i++)
        for (int64_t t = 0; t < work->run; t++)
            sum[i] += factor[i] * terms[i * work->run + t];
}

static void run_units(void *arg, int64_t begin, int64_t end) {
    const struct work *work = arg;
    const struct shape_reduction *shape = work->reduce->shape;
    double factor[STRIP], sum[STRIP];

    for (int64_t unit = begin; unit < end; unit++) {
        int64_t s = unit / shape->partials;
        struct strip strip = {.piece = (uint32_t)(unit % shape->partials)};
        int64_t within = s % work->strips_an_inner * STRIP;

        strip.output = s / work->strips_an_inner * work->inner + within;
        strip.count = work->inner - within < STRIP ? work->inner - within : STRIP;
        strip.first = strip.piece * shape->piece;
        strip.last = shape->reduced - strip.first < shape->piece ? shape->reduced
                                                                 : strip.first + shape->piece;
        load_factors(work, &strip, factor);
        memset(sum, 0, sizeof sum);
        if (strip.first < strip.last)
            work->sum(work, &strip, factor, sum);
        if (shape->partials == 1)
            finish(work, strip.output, sum, strip.count);
        else
            memcpy(work->reduce->partials + strip.piece * shape->outputs + strip.output, sum,
                   (size_t)strip.count * sizeof *sum);
    }
}

static void run_finish(void *arg, int64_t begin, int64_t end) {
    const struct work *work = arg;
    const struct shape_reduction *shape = work->reduce->shape;
    double sum[STRIP];

    for (int64_t k = begin; k < end; k += STRIP) {
        int64_t count = end - k < STRIP ? end - k : STRIP;
        memset(sum, 0, sizeof sum);
        for (uint32_t p = 0; p < shape->partials; p++)
            for (int64_t i = 0; i < count; i++)
                sum[i] += work->reduce->partials[p * shape->outputs + k + i];
        finish(work, k, sum, count);
    }
}

static void prepare(struct work *work) {
    const struct shape_reduction *shape = work->reduce->shape;

    dims_of(work->kept, shape->kept, shape->nkept);
    dims_of(work->axis, shape->axis, shape->nreduced);
    work->nkept = shape->nkept;
    work->naxis = shape->nreduced;
    work->inner = shape->outputs;
    work->run = 1;
    work->sum = sum_rows;
    if (shape->nkept > 0 && shape->kept[shape->nkept - 1].stride == 1) {
        work->inner = shape->kept[--work->nkept].size;
    } else if (shape->nreduced > 0) {
        work->run = shape->axis[--work->naxis].size;
        work->sum =
            shape->form == SHAPE_COLUMN && work->run <= SHORT_RUN ? sum_short_runs : sum_runs;
    }
    work->strips_an_inner = (work->inner - 1) / STRIP + 1;
}

void reduce_run(const struct reduce *reduce, const struct xop_host *host) {
    const struct shape_reduction *shape = reduce->shape;
    struct work work = {
        .reduce = reduce, .loops = loops_best(), .size = xop_dtype_size(reduce->dtype)};
    int64_t units, unit_terms, grain;

    if (shape->outputs == 0)
        return;
    prepare(&work);
    work.dtype = reduce->make && reduce->dtype != XOP_F64 ? XOP_F32 : reduce->dtype;
    units = shape->outputs / work.inner * work.strips_an_inner * shape->partials;
    unit_terms = shape->piece * (work.inner < STRIP ? work.inner : STRIP);
    grain = unit_terms < LAUNCH_GRAIN ? LAUNCH_GRAIN / unit_terms : 1;
    host->parallel(host, units, grain, run_units, &work);
    if (shape->partials > 1)
        host->parallel(host, shape->outputs, LAUNCH_GRAIN / shape->partials, run_finish, &work);
}
