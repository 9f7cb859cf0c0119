#include "reference.h"

#include <string.h>

static const struct reference *const all[] = {
    &reference_square_bias,   &reference_sigmoid,   &reference_sigmoid_complement,
    &reference_bose_einstein, &reference_linear,    &reference_relu,
    &reference_leaky_relu,    &reference_elu,       &reference_gelu,
    &reference_silu,          &reference_tanh,      &reference_softplus,
    &reference_exp,           &reference_log,       &reference_sqrt,
    &reference_rsqrt,         &reference_abs,       &reference_neg,
    &reference_sin,           &reference_cos,       &reference_erf,
    &reference_clamp,         &reference_hardswish, &reference_mish,
    &reference_cast,          &reference_softmax,   &reference_log_softmax,
    &reference_layer_norm,    &reference_rms_norm,  &reference_add,
    &reference_sub,           &reference_mul,       &reference_div,
    &reference_pow,           &reference_maximum,   &reference_minimum,
    &reference_sum,           &reference_mean,      &reference_max,
    &reference_min,           &reference_prod,      &reference_logsumexp,
    &reference_var,           &reference_mse_loss,  &reference_binary_cross_entropy_with_logits,
    &reference_cross_entropy, &reference_nll_loss,  &reference_where,
};

const struct reference *reference_at(uint32_t n) {
    return n < sizeof all / sizeof *all ? all[n] : NULL;
}

static const struct xop_attr *attr_of(const struct reference_arithmetic *arithmetic,
                                      const char *name) {
    const struct reference_setting *setting = arithmetic->setting;
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, name) == 0)
            return &setting->attr[i];
    return NULL;
}

double reference_number(const struct reference_arithmetic *arithmetic, const char *name,
                        double fallback) {
    const struct xop_attr *attr = attr_of(arithmetic, name);
    return !attr ? fallback : attr->type == XOP_ATTR_FLOAT ? attr->value.f : (double)attr->value.i;
}

const char *reference_text(const struct reference_arithmetic *arithmetic, const char *name,
                           const char *fallback) {
    const struct xop_attr *attr = attr_of(arithmetic, name);
    return attr ? attr->value.string : fallback;
}

const struct reference *reference_find(const char *name) {
    for (uint32_t i = 0; reference_at(i); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
