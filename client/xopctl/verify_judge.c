#include "verify_trial.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void free_reference(struct reference_tensor *t) {
    free(t->data);
    free(t->scale);
}

void trial_free(struct trial *trial) {
    for (uint32_t i = 0; i < VERIFY_MAX_IN; i++) {
        value_free(&trial->in[i]);
        free_reference(&trial->ref_in[i]);
    }
    for (uint32_t i = 0; i < XOP_MAX_OUTPUTS; i++)
        free_reference(&trial->ref_out[i]);
}

static int64_t elements(uint32_t rank, const int64_t *shape) {
    int64_t n = 1;
    for (uint32_t i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

static bool allocate(struct reference_tensor *t, bool output) {
    t->n = elements(t->rank, t->shape);
    size_t bytes = (size_t)(t->n ? t->n : 1) * sizeof(double);
    t->data = malloc(bytes);
    t->scale = output ? malloc(bytes) : NULL;
    t->terms = 1;
    return t->data && (!output || t->scale);
}

enum xop_dtype verify_result_dtype(const struct verify_subject *s) {
    const char *name = s->reference->makes_dtype ? s->setting->attr[0].value.string : NULL;
    return name ? value_dtype_named(name, strlen(name)) : s->dtype;
}

static struct reference_arithmetic arithmetic_of(const struct verify_subject *s) {
    enum xop_dtype computed = s->dtype == XOP_F64 ? XOP_F64 : XOP_F32;
    return (struct reference_arithmetic){value_largest(computed), value_least_normal(computed),
                                         value_smallest(computed), s->setting};
}

/* A new input of the trial: values as the dtype holds them, and as doubles for the reference. */
static struct value *add_input(struct trial *trial, enum xop_dtype dtype, uint32_t rank,
                               const int64_t *shape) {
    struct xop_error ignored;
    uint32_t i = trial->nin;
    struct reference_tensor *ref = &trial->ref_in[i];
    ref->rank = rank;
    memcpy(ref->shape, shape, rank * sizeof *shape);
    /* The analyzer gives up on trial_free's loop. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    if (value_new(&trial->in[i], dtype, rank, shape, &ignored) != XOP_OK)
        return NULL;
    trial->nin++; /* and trial_free has it, whatever comes */
    return allocate(ref, false) ? &trial->in[i] : NULL;
}

static void mirror(struct trial *trial, uint32_t i) {
    for (int64_t k = 0; k < trial->in[i].n; k++)
        trial->ref_in[i].data[k] = value_get(&trial->in[i], k);
    trial->tensors[i] = trial->in[i].tensor;
}

static bool make_outputs(struct trial *trial, const struct verify_subject *s, enum xop_pass pass) {
    const struct reference *reference = s->reference;
    trial->nout = pass == XOP_FORWARD ? reference->nout : reference->ngrad;
    if (reference->shape_for
            ? !reference->shape_for(s->setting, pass, trial->ref_in, trial->ref_out)
            : !reference->shape(pass, trial->ref_in, trial->ref_out))
        return false;
    for (uint32_t i = 0; i < trial->nout; i++)
        if (!allocate(&trial->ref_out[i], true))
            return false;
    return true;
}

/* A case's inputs by their shapes alone. */
static void inputs_of(const struct verify_subject *s, const struct verify_case *what,
                      struct reference_tensor in[VERIFY_MAX_IN]) {
    memset(in, 0, VERIFY_MAX_IN * sizeof *in);
    for (uint32_t i = 0; i < s->reference->nin; i++) {
        in[i].absent = what->absent[i];
        in[i].rank = what->rank[i];
        memcpy(in[i].shape, what->shape[i], sizeof in[i].shape);
    }
}

bool trial_is_index(const struct verify_subject *s, const struct verify_case *what, uint32_t input,
                    struct reference_indices *indices) {
    struct reference_tensor in[VERIFY_MAX_IN];
    *indices = (struct reference_indices){0};
    if (!s->reference->index || what->absent[input])
        return false;
    inputs_of(s, what, in);
    return s->reference->index(s->setting, input, in, indices);
}

bool verify_takes(const struct verify_subject *s, const struct verify_case *what) {
    struct reference_tensor in[VERIFY_MAX_IN];
    inputs_of(s, what, in);
    return !s->reference->takes || s->reference->takes(s->setting, in);
}

static bool forward_inputs(struct trial *trial, const struct verify_subject *s,
                           const struct verify_case *what, struct random *random) {
    for (uint32_t i = 0; i < s->reference->nin; i++) {
        if (what->absent[i]) {
            trial->ref_in[trial->nin++].absent = true;
            continue;
        }
        struct reference_indices indices;
        bool index = trial_is_index(s, what, i, &indices);
        enum xop_dtype dtype = !index                    ? s->dtype
                               : indices.is_condition    ? XOP_BOOL
                               : random_next(random) & 1 ? XOP_I32
                                                         : XOP_I64;
        struct value *value = add_input(trial, dtype, what->rank[i], what->shape[i]);
        if (!value)
            return false;
        if (index)
            verify_fill_indices(value, &indices, random);
        else
            verify_fill(value, s->reference, what->fill, i, random);
        mirror(trial, i);
    }
    return true;
}

/* Where there is no reference, backward gets some number for what forward is to have saved. */
static void compute(void (*formula)(const struct reference_arithmetic *,
                                    const struct reference_tensor *, struct reference_tensor *),
                    const struct reference_arithmetic *arithmetic, struct trial *trial) {
    if (formula)
        formula(arithmetic, trial->ref_in, trial->ref_out);
    for (uint32_t i = 0; !formula && i < trial->nout; i++)
        for (int64_t k = 0; k < trial->ref_out[i].n; k++)
            trial->ref_out[i].data[k] = trial->ref_out[i].scale[k] = 0.5;
}

static bool forward_trial(struct trial *trial, const struct verify_subject *s,
                          const struct verify_case *what, struct random *random) {
    struct reference_arithmetic arithmetic = arithmetic_of(s);
    if (!forward_inputs(trial, s, what, random) || !make_outputs(trial, s, XOP_FORWARD))
        return false;
    compute(s->reference->forward, &arithmetic, trial);
    return true;
}

/* Takes over forward's operand for backward: an input as it is, an output rounded to the dtype.
 * Edge values of a saved output are tried as they are. */
static bool save(struct trial *to, const struct verify_subject *s, const struct value *in,
                 const struct reference_tensor *out, bool shape_only, enum reference_fill fill,
                 struct random *random) {
    uint32_t i = to->nin, rank = in ? in->tensor.rank : out->rank;
    const int64_t *shape = in ? in->tensor.shape : out->shape;
    struct value *value = add_input(to, in ? in->tensor.dtype : s->dtype, rank, shape);
    if (!value)
        return false;
    if (!in && fill == REFERENCE_EDGES)
        verify_fill(value, s->reference, fill, i, random);
    else
        for (int64_t k = 0; k < value->n; k++)
            value_set(value, k, in ? value_get(in, k) : out->data[k]);
    mirror(to, i);
    if (shape_only)
        to->tensors[i].data = NULL;
    return true;
}

static bool backward_trial(struct trial *trial, const struct verify_subject *s,
                           const struct verify_case *what, struct random *random) {
    const struct reference *r = s->reference;
    struct reference_arithmetic arithmetic = arithmetic_of(s);
    struct trial forward = {0};
    uint32_t place = 0;
    bool ok = forward_trial(&forward, s, what, random);
    for (uint32_t i = 0; ok && i < r->nin; i++)
        if (r->saved_in >> i & 1 && forward.ref_in[i].absent)
            trial->ref_in[trial->nin++].absent = true;
        else if (r->saved_in >> i & 1)
            ok = save(trial, s, &forward.in[i], NULL, r->shape_only >> place++ & 1, what->fill,
                      random);
    for (uint32_t i = 0; ok && i < r->nout; i++)
        if (r->saved_out >> i & 1)
            ok = save(trial, s, NULL, &forward.ref_out[i], r->shape_only >> place++ & 1, what->fill,
                      random);
    for (uint32_t i = 0; ok && i < r->nout; i++) {
        uint32_t at = trial->nin;
        if (r->ungraded >> i & 1)
            continue;
        struct value *value = add_input(trial, verify_result_dtype(s), forward.ref_out[i].rank,
                                        forward.ref_out[i].shape);
        ok = value != NULL;
        if (ok) {
            verify_fill(value, r, what->fill, 1, random);
            mirror(trial, at);
        }
    }
    trial_free(&forward);
    if (!ok || !make_outputs(trial, s, XOP_BACKWARD))
        return false;
    compute(r->backward, &arithmetic, trial);
    return true;
}

bool trial_make(struct trial *trial, const struct verify_subject *s, const struct verify_case *what,
                struct random *random) {
    memset(trial, 0, sizeof *trial);
    bool ok = s->pass == XOP_FORWARD ? forward_trial(trial, s, what, random)
                                     : backward_trial(trial, s, what, random);
    if (!ok)
        trial_free(trial);
    return ok;
}

/* ---- Comparing ---- */

/* "betas=(0.9, 0.999)" */
static size_t floats_text(char *out, size_t capacity, const char *space,
                          const struct xop_attr *attr) {
    size_t used = (size_t)snprintf(out, capacity, "%s%s=(", space, attr->name);
    for (uint32_t i = 0; i < attr->count && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%g", i ? ", " : "",
                                 attr->value.floats[i]);
    if (used < capacity)
        used += (size_t)snprintf(out + used, capacity - used, ")");
    return used;
}

void verify_setting_text(const struct reference_setting *setting, char *out, size_t capacity) {
    char shape[128];
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; setting && i < setting->nattrs && used < capacity; i++) {
        const struct xop_attr *attr = &setting->attr[i];
        const char *space = i ? " " : "";
        if (attr->type == XOP_ATTR_STRING)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s=%s", space, attr->name,
                                     attr->value.string);
        else if (attr->type == XOP_ATTR_FLOAT)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s=%g", space, attr->name,
                                     attr->value.f);
        else if (attr->type == XOP_ATTR_FLOATS)
            used += floats_text(out + used, capacity - used, space, attr);
        else if (attr->type == XOP_ATTR_INTS)
            used += (size_t)snprintf(
                out + used, capacity - used, "%s%s=%s", space, attr->name,
                value_shape_text(shape, sizeof shape, attr->count, attr->value.ints));
        else
            used += (size_t)snprintf(out + used, capacity - used, "%s%s=%lld", space, attr->name,
                                     (long long)attr->value.i);
    }
}

void trial_shapes(const struct verify_subject *s, const struct trial *trial, char *out,
                  size_t capacity) {
    size_t used = 0;
    char shape[128], setting[128];
    out[0] = 0;
    for (uint32_t i = 0; i < trial->nin && used < capacity; i++) {
        const struct xop_tensor *tensor = &trial->in[i].tensor;
        const char *text = trial->ref_in[i].absent
                               ? "none"
                               : value_shape_text(shape, sizeof shape, tensor->rank, tensor->shape);
        used += (size_t)snprintf(out + used, capacity - used, "%s%s", i ? " " : "", text);
    }
    verify_setting_text(s->setting, setting, sizeof setting);
    if (*setting && used < capacity)
        snprintf(out + used, capacity - used, " with %s", setting);
}

/* What an element may be off: rounding of the result, and of a computation in f32 (f64 for f64)
 * whose terms were as large as `scale`, and whose sum lets errors grow to so many roundoffs. */
static double tolerance(enum xop_dtype dtype, double expected, double scale, double growth) {
    double computed = value_roundoff(dtype == XOP_F64 ? XOP_F64 : XOP_F32);
    double rounding = value_roundoff(dtype) * fabs(expected);
    if (!isfinite(scale))
        scale = fabs(expected);
    return rounding + computed * growth * scale + value_smallest(dtype);
}

/* To how many roundoffs of what is summed the error of a sum may grow. In any order of n terms, and
 * with their products rounded, at most to n / (1 - n u) of them (Higham, Accuracy and Stability of
 * Numerical Algorithms, 2nd edition, section 3.1). Units that multiply f16 and bf16 may cut digits
 * off where others round, which is up to twice as much (Fasi, Higham, Mikaitis and Pranesh,
 * Numerical behavior of NVIDIA tensor cores, 2021). Of small whole numbers every sum is exact. */
static double growth_of(const struct verify_subject *s, enum reference_fill fill, int64_t terms) {
    double n = (double)terms, u = value_roundoff(s->dtype == XOP_F64 ? XOP_F64 : XOP_F32);
    if (!s->reference->any_order)
        return 2 + 2 * log2(n + 1);
    if (fill == REFERENCE_WHOLE)
        return 0;
    return (xop_dtype_size(s->dtype) == 2 ? 2 : 1) * n / (1 - n * u);
}

/* Error over tolerance; infinite where a value is of the wrong kind. */
static double compare(enum xop_dtype dtype, double got, double expected, double scale,
                      double growth) {
    double largest = value_largest(dtype);
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got) ? 0 : INFINITY;
    if (isinf(expected))
        return got == expected ? 0 : INFINITY;
    double allowed = tolerance(dtype, expected, scale, growth);
    /* Near the largest number, which side of it a result falls on is a matter of rounding. */
    if (isinf(got))
        return fabs(expected) + allowed >= largest && (got > 0) == (expected > 0) ? 0 : INFINITY;
    if (fabs(expected) > largest) {
        if (fabs(got) < largest || (got > 0) != (expected > 0))
            return INFINITY;
        return fabs(expected) - allowed <= largest ? 0 : INFINITY;
    }
    return fabs(got - expected) / allowed;
}

static const char *output_name(const struct verify_subject *s, uint32_t i) {
    json_t *outputs = json_object_get(s->signature, "outputs");
    const char *name = json_string_value(json_object_get(json_array_get(outputs, i), "name"));
    return name ? name : "?";
}

static bool has_formula(const struct verify_subject *s) {
    return s->pass == XOP_FORWARD ? s->reference->forward != NULL : s->reference->backward != NULL;
}

static bool compare_all(const struct verify_subject *s, const struct trial *trial,
                        enum reference_fill fill, const struct xop_result *result,
                        struct verify_worst *worst, char *sentence, size_t capacity) {
    char shapes[256], shape[128];
    struct verify_worst here = {.ratio = -1};
    bool formula = has_formula(s);
    enum xop_dtype dtype = s->pass == XOP_FORWARD ? verify_result_dtype(s) : s->dtype;
    trial_shapes(s, trial, shapes, sizeof shapes);
    if (result->nout != trial->nout) {
        snprintf(sentence, capacity, "%u outputs came, %u are expected", result->nout, trial->nout);
        return false;
    }
    for (uint32_t i = 0; i < trial->nout; i++) {
        const struct reference_tensor *ref = &trial->ref_out[i];
        struct value got = {.tensor = result->out[i], .n = ref->n};
        if (got.tensor.dtype != dtype || got.tensor.rank != ref->rank ||
            memcmp(got.tensor.shape, ref->shape, ref->rank * sizeof *ref->shape) != 0) {
            snprintf(sentence, capacity, "inputs %s: output %s is %s %s", shapes, output_name(s, i),
                     xop_dtype_name(got.tensor.dtype),
                     value_shape_text(shape, sizeof shape, got.tensor.rank, got.tensor.shape));
            return false;
        }
        double growth = growth_of(s, fill, ref->terms);
        for (int64_t k = 0; k < ref->n; k++) {
            double element = value_get(&got, k);
            double ratio = !formula ? (isnan(element) ? INFINITY : -1)
                                    : compare(dtype, element, ref->data[k], ref->scale[k], growth);
            if (ratio > here.ratio) {
                here = (struct verify_worst){ratio, element, ref->data[k], k, "", ""};
                snprintf(here.operand, sizeof here.operand, "%s", output_name(s, i));
            }
        }
    }
    snprintf(here.shapes, sizeof here.shapes, "%s", shapes);
    if (here.ratio > worst->ratio)
        *worst = here;
    if (here.ratio <= 1)
        return true;
    if (!formula) {
        snprintf(sentence, capacity,
                 "inputs %s: %s[%lld] is %.9g: it was not written, or is no number", shapes,
                 here.operand, (long long)here.at, here.got);
        return false;
    }
    snprintf(sentence, capacity,
             "inputs %s: %s[%lld] is %.9g, expected %.9g (%.3g times the "
             "tolerance)",
             shapes, here.operand, (long long)here.at, here.got, here.expected, here.ratio);
    return false;
}

/* ---- Running ---- */

static struct xop_request request_for(const struct verify_subject *s, enum xop_pass pass,
                                      const struct xop_tensor *in, uint32_t nin) {
    return (struct xop_request){.op = s->op,
                                .pass = pass,
                                .in = in,
                                .nin = nin,
                                .attrs = s->setting ? s->setting->attr : NULL,
                                .nattrs = s->setting ? s->setting->nattrs : 0};
}

struct xop_request trial_request(const struct verify_subject *s, const struct trial *trial) {
    return request_for(s, s->pass, trial->tensors, trial->nin);
}

enum verify_outcome trial_failed(const struct verify_subject *s, const struct xop_result *result,
                                 const struct trial *trial, char *sentence, size_t capacity) {
    char shapes[256];
    trial_shapes(s, trial, shapes, sizeof shapes);
    snprintf(sentence, capacity, "inputs %s: %s: %s", shapes,
             xop_status_name(result ? result->error.status : XOP_RESOURCE_EXHAUSTED),
             result ? result->error.message : "out of memory");
    enum xop_status status = result ? result->error.status : XOP_RESOURCE_EXHAUSTED;
    return status == XOP_UNAVAILABLE    ? VERIFY_BROKEN
           : status == XOP_DEVICE_FAULT ? VERIFY_FAULTED
                                        : VERIFY_FAILED;
}

enum verify_outcome verify_judge(const struct verify_subject *s, const struct verify_case *what,
                                 struct random *random, struct verify_worst *worst, char *sentence,
                                 size_t capacity) {
    struct trial trial;
    struct xop_result *result;
    if (!trial_make(&trial, s, what, random)) {
        snprintf(sentence, capacity, "out of memory, or a case that does not fit the operator");
        return VERIFY_FAILED;
    }
    struct xop_request request = trial_request(s, &trial);
    enum verify_outcome outcome = VERIFY_PASSED;
    request.check = true;
    if (xop_run(s->session->client, &request, &result) != XOP_OK)
        outcome = trial_failed(s, result, &trial, sentence, capacity);
    else if (!compare_all(s, &trial, what->fill, result, worst, sentence, capacity))
        outcome = VERIFY_FAILED;
    xop_result_free(result);
    trial_free(&trial);
    return outcome;
}

/* ---- The same bits ---- */

#define COPIES 40

struct copies {
    const struct xop_result *first;
    uint32_t different, failures;
};

static bool same_bits(const struct xop_result *a, const struct xop_result *b) {
    for (uint32_t i = 0; i < a->nout; i++) {
        uint64_t bytes = 0;
        if (a->nout != b->nout || !xop_tensor_bytes(&a->out[i], &bytes) ||
            memcmp(a->out[i].data, b->out[i].data, bytes) != 0)
            return false;
    }
    return true;
}

static void on_copy(void *arg, struct xop_result *result) {
    struct copies *copies = arg;
    if (result->error.status != XOP_OK)
        copies->failures++;
    else if (!same_bits(copies->first, result))
        copies->different++;
    xop_result_free(result);
}

enum verify_outcome verify_repeat(const struct verify_subject *s, const struct verify_case *what,
                                  struct random *random, char *sentence, size_t capacity) {
    struct trial trial;
    struct xop_result *first = NULL;
    struct xop_error error;
    if (!trial_make(&trial, s, what, random)) {
        snprintf(sentence, capacity, "out of memory");
        return VERIFY_FAILED;
    }
    struct xop_request request = trial_request(s, &trial);
    enum verify_outcome outcome = VERIFY_PASSED;
    if (xop_run(s->session->client, &request, &first) != XOP_OK) {
        outcome = trial_failed(s, first, &trial, sentence, capacity);
    } else {
        struct copies copies = {.first = first};
        for (int i = 0; i < COPIES; i++)
            if (xop_submit(s->session->client, &request, on_copy, &copies, NULL, &error) != XOP_OK)
                copies.failures++;
        xop_client_wait(s->session->client, 0, &error);
        if (copies.different || copies.failures) {
            char shapes[256];
            trial_shapes(s, &trial, shapes, sizeof shapes);
            snprintf(sentence, capacity,
                     "inputs %s: of %d copies of one request at once %u gave other bits than the "
                     "request alone, %u failed",
                     shapes, COPIES, copies.different, copies.failures);
            outcome = VERIFY_FAILED;
        }
    }
    xop_result_free(first);
    trial_free(&trial);
    return outcome;
}

/* ---- Central differences ---- */

#define STEP 1e-5 /* about the cube root of a double's precision */
/* Arguments lie between multiples of 1/GRID and apart from other inputs', so that no difference is
 * taken across a kink, which lies at a round number or where inputs are equal. */
#define GRID 128.0

/* sum(gy * forward(in)), through the daemon. */
static bool weigh(const struct verify_subject *s, const struct trial *inputs,
                  const struct value *gy, double *sum) {
    struct xop_request request = request_for(s, XOP_FORWARD, inputs->tensors, s->reference->nin);
    struct xop_result *result;
    bool ok = xop_run(s->session->client, &request, &result) == XOP_OK;
    *sum = 0;
    for (int64_t k = 0; ok && k < gy->n; k++)
        *sum += value_get(gy, k) * ((const double *)result->out[0].data)[k];
    xop_result_free(result);
    return ok;
}

static bool differences_of(const struct verify_subject *s, struct trial *inputs,
                           const struct value *gy, uint32_t i, const struct xop_tensor *gradient,
                           struct verify_worst *worst) {
    struct value got = {.tensor = *gradient}, *in = &inputs->in[s->reference->first_grad + i];
    for (int64_t k = 0; k < in->n; k++) {
        double x = value_get(in, k), above, below;
        value_set(in, k, x + STEP);
        bool ok = weigh(s, inputs, gy, &above);
        value_set(in, k, x - STEP);
        ok = ok && weigh(s, inputs, gy, &below);
        value_set(in, k, x);
        if (!ok)
            return false;
        double expected = (above - below) / (2 * STEP), element = value_get(&got, k);
        double ratio = fabs(element - expected) / (1e-6 * fmax(1, fabs(expected)));
        if (!(ratio <= worst->ratio)) {
            *worst = (struct verify_worst){
                isnan(ratio) ? INFINITY : ratio, element, expected, k, "", ""};
            snprintf(worst->operand, sizeof worst->operand, "%s", output_name(s, i));
            trial_shapes(s, inputs, worst->shapes, sizeof worst->shapes);
        }
    }
    return true;
}

static bool draw_smooth(struct trial *inputs, const struct verify_subject *s,
                        const struct verify_case *what, struct random *random) {
    const struct reference *r = s->reference;
    for (uint32_t i = 0; i < r->nin; i++) {
        struct reference_indices indices;
        bool index = trial_is_index(s, what, i, &indices);
        enum xop_dtype dtype = !index ? XOP_F64 : indices.is_condition ? XOP_BOOL : XOP_I64;
        struct value *value = add_input(inputs, dtype, what->rank[i], what->shape[i]);
        if (!value)
            return false;
        if (index)
            verify_fill_indices(value, &indices, random);
        for (int64_t k = 0; !index && k < value->n; k++) {
            double x = random_between(random, r->smooth_low, r->smooth_high);
            value_set(value, k, (2 * floor(x * GRID) + 1 + i / 2.0) / (2 * GRID));
        }
        mirror(inputs, i);
    }
    return true;
}

enum verify_outcome verify_differences(const struct verify_subject *s,
                                       const struct verify_case *what, struct random *random,
                                       struct verify_worst *worst, char *sentence,
                                       size_t capacity) {
    const struct reference *r = s->reference;
    struct trial inputs = {0};
    struct xop_tensor in[VERIFY_MAX_IN];
    struct xop_result *forward = NULL, *backward = NULL;
    struct xop_error error;
    struct value gy = {0};
    uint32_t n = 0;
    enum verify_outcome outcome = VERIFY_FAILED;
    snprintf(sentence, capacity, "out of memory");
    if (!draw_smooth(&inputs, s, what, random))
        goto out;
    struct xop_request request = request_for(s, XOP_FORWARD, inputs.tensors, r->nin);
    if (xop_run(s->session->client, &request, &forward) != XOP_OK) {
        outcome = trial_failed(s, forward, &inputs, sentence, capacity);
        goto out;
    }
    const struct xop_tensor *y = &forward->out[0];
    if (value_new(&gy, XOP_F64, y->rank, y->shape, &error) != XOP_OK)
        goto out;
    for (int64_t k = 0; k < gy.n; k++)
        value_set(&gy, k, random_between(random, -1, 1));
    for (uint32_t i = 0; i < r->nin; i++)
        if (r->saved_in >> i & 1)
            in[n++] = inputs.tensors[i];
    for (uint32_t i = 0; i < r->nout; i++)
        if (r->saved_out >> i & 1)
            in[n++] = forward->out[i];
    in[n++] = gy.tensor;
    request = request_for(s, XOP_BACKWARD, in, n);
    if (xop_run(s->session->client, &request, &backward) != XOP_OK) {
        outcome = trial_failed(s, backward, &inputs, sentence, capacity);
        goto out;
    }
    struct verify_worst here = {.ratio = -1};
    outcome = VERIFY_PASSED;
    for (uint32_t i = 0; i < r->ngrad && i < backward->nout; i++)
        if (!differences_of(s, &inputs, &gy, i, &backward->out[i], &here))
            outcome = VERIFY_FAILED;
    if (here.ratio > worst->ratio)
        *worst = here;
    if (here.ratio > 1) {
        snprintf(sentence, capacity,
                 "inputs %s: %s[%lld] is %.9g, but forward changes by %.9g (central difference)",
                 here.shapes, here.operand, (long long)here.at, here.got, here.expected);
        outcome = VERIFY_FAILED;
    }
out:
    xop_result_free(forward);
    xop_result_free(backward);
    value_free(&gy);
    trial_free(&inputs);
    return outcome;
}
