/*
 * Losses on the CPU, in f64 for every dtype. Callable as launch.h says.
 */
#ifndef KERNELS_CPU_LOSS_H
#define KERNELS_CPU_LOSS_H

#include "kernels/loss.h"

enum xop_status mse_loss_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status mse_loss_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status binary_cross_entropy_with_logits_cpu_forward(const struct xop_launch *launch,
                                                             struct xop_error *error);
enum xop_status binary_cross_entropy_with_logits_cpu_backward(const struct xop_launch *launch,
                                                              struct xop_error *error);
enum xop_status cross_entropy_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status cross_entropy_cpu_backward(const struct xop_launch *launch,
                                           struct xop_error *error);
enum xop_status nll_loss_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status nll_loss_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

/* The parts of all pieces added up in order. */
struct loss_sums {
    double loss, weight;
};
struct loss_sums loss_add_up(const double *partials, int64_t pieces);

/* Element `at` of a tensor's data. */
double loss_element(enum xop_dtype dtype, const void *data, int64_t at);
void loss_store(enum xop_dtype dtype, void *data, int64_t at, double value);

#endif
