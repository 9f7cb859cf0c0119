/*
 * Judging any operator by its reference in client/reference: the shapes of its outputs, and each
 * element by the bound that the reference's scale gives.
 */
#ifndef TESTS_GPU_JUDGE_CUH
#define TESTS_GPU_JUDGE_CUH

extern "C" {
#include "client/reference/reference.h"
}
#include "tests/gpu/operators.cuh"

static struct reference_tensor judge_mirror(const struct xop_tensor *tensor, bool output) {
    struct reference_tensor made = {};
    made.rank = tensor->rank;
    made.absent = !output && tensor->dtype == XOP_DTYPE_NONE;
    memcpy(made.shape, tensor->shape, sizeof made.shape);
    xop_tensor_elements(tensor, &made.n);
    made.data = (double *)calloc((size_t)made.n + 1, sizeof *made.data);
    made.scale = (double *)calloc((size_t)made.n + 1, sizeof *made.scale);
    if (!made.data || !made.scale)
        FIXTURE_DIE("no memory");
    for (int64_t i = 0; !output && tensor->data && i < made.n; i++)
        made.data[i] = reference_get(tensor->dtype, tensor->data, i);
    return made;
}

/* In how many roundoffs of what is computed in an element may be off, relative to its scale; see
 * verify. */
static double judge_growth(const struct reference *reference, enum xop_dtype dtype, int64_t terms) {
    double n = (double)terms, u = dtype == XOP_F64 ? 0x1p-53 : 0x1p-24;
    if (!reference->any_order)
        return 2 + 2 * log2(n + 1);
    return (dtype == XOP_F32 ? 1 : 2) * n / (1 - n * u);
}

/* in and out lie where the host can read them. Outputs without data are not looked at. exact: all
 * sums are, so that nothing is lost but by the rounding to the dtype. */
static void judge_outputs(struct tally *tally, const struct reference *reference,
                          const struct reference_setting *setting, enum xop_pass pass,
                          const struct xop_signature *signature, const struct xop_tensor *in,
                          const struct xop_tensor *out, bool exact) {
    struct reference_arithmetic arithmetic = {};
    struct reference_tensor from[XOP_MAX_INPUTS] = {}, to[XOP_MAX_OUTPUTS] = {};
    enum xop_dtype dtype = in[0].dtype;
    double u = dtype == XOP_F64 ? 0x1p-53 : 0x1p-24;

    arithmetic.max = INFINITY;
    arithmetic.setting = setting;
    for (uint32_t i = 0; i < signature->nin; i++)
        from[i] = judge_mirror(&in[i], false);
    for (uint32_t i = 0; i < signature->nout; i++)
        to[i] = judge_mirror(&out[i], true);
    if (!tally_check(tally, reference->shape_for(setting, pass, from, to),
                     "the reference does not take these shapes"))
        return;
    (pass == XOP_FORWARD ? reference->forward : reference->backward)(&arithmetic, from, to);
    for (uint32_t i = 0; i < signature->nout; i++) {
        double growth = exact ? 0 : judge_growth(reference, dtype, to[i].terms);
        tally_check(tally,
                    to[i].rank == out[i].rank &&
                        memcmp(to[i].shape, out[i].shape, to[i].rank * sizeof *to[i].shape) == 0,
                    "output %u has another shape", i);
        for (int64_t k = 0; out[i].data && k < to[i].n; k++) {
            double got = reference_get(dtype, out[i].data, k), want = to[i].data[k];
            double excuse = growth * u * to[i].scale[k];
            tally_error(tally, reference_error(dtype, got, want, excuse), EXACT,
                        "%s[%lld] is %.17g, not %.17g", signature->out[i].name, (long long)k, got,
                        want);
        }
    }
    for (uint32_t i = 0; i < signature->nin; i++) {
        free(from[i].data);
        free(from[i].scale);
    }
    for (uint32_t i = 0; i < signature->nout; i++) {
        free(to[i].data);
        free(to[i].scale);
    }
}

/* All of an operator's attributes: defaults, but for what the setting names. */
static void judge_attrs(const struct xop_op *op, const struct reference_setting *setting,
                        struct xop_attr *attrs) {
    for (uint32_t i = 0; i < op->nattrs; i++) {
        attrs[i] = op->attrs[i].fallback;
        for (uint32_t k = 0; setting && k < setting->nattrs; k++)
            if (strcmp(setting->attr[k].name, op->attrs[i].name) == 0)
                attrs[i] = setting->attr[k];
    }
}

static bool judge_same(const struct xop_tensor *a, const struct xop_tensor *b) {
    uint64_t bytes = 0;
    return xop_tensor_bytes(a, &bytes) && (bytes == 0 || memcmp(a->data, b->data, bytes) == 0);
}

#endif
