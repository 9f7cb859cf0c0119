/*
 * The launch functions of the CPU's operators, and what they share. Each is called on the loop's
 * thread or on one of the pool's, and computes the whole group before it returns.
 */
#ifndef KERNELS_CPU_LAUNCH_H
#define KERNELS_CPU_LAUNCH_H

#include <xop/op.h>

#define LAUNCH_MAX_GROUP 1024u /* calls a launch of ours takes */
/* Elements that are worth handing to another thread. */
#define LAUNCH_GRAIN 32768

/* Runs each call of the group, several at once where there are several. A call may itself use
 * launch->host->parallel. */
void launch_each(const struct xop_launch *launch,
                 void (*run)(const struct xop_host *host, const struct xop_call *call));

/* Defines NAME_cpu_forward and NAME_cpu_backward by what each does with a call. */
#define LAUNCH_EACH(name, forward_call, backward_call)                                             \
    enum xop_status name##_cpu_forward(const struct xop_launch *launch, struct xop_error *error) { \
        (void)error;                                                                               \
        launch_each(launch, forward_call);                                                         \
        return XOP_OK;                                                                             \
    }                                                                                              \
    enum xop_status name##_cpu_backward(const struct xop_launch *launch,                           \
                                        struct xop_error *error) {                                 \
        (void)error;                                                                               \
        launch_each(launch, backward_call);                                                        \
        return XOP_OK;                                                                             \
    }

enum xop_status square_bias_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status square_bias_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status linear_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status linear_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status matmul_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status matmul_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status sgd_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status adam_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status adamw_cpu_forward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status sigmoid_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status sigmoid_cpu_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status sigmoid_complement_cpu_forward(const struct xop_launch *launch,
                                               struct xop_error *error);
enum xop_status sigmoid_complement_cpu_backward(const struct xop_launch *launch,
                                                struct xop_error *error);
enum xop_status bose_einstein_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status bose_einstein_cpu_backward(const struct xop_launch *launch,
                                           struct xop_error *error);

enum xop_status cast_cpu_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status cast_cpu_backward(const struct xop_launch *launch, struct xop_error *error);

#define UNARY(name, ...)                                                                           \
    enum xop_status unary_##name##_cpu_forward(const struct xop_launch *launch,                    \
                                               struct xop_error *error);                           \
    enum xop_status unary_##name##_cpu_backward(const struct xop_launch *launch,                   \
                                                struct xop_error *error);
#include "kernels/unary.def"
#define BINARY(name, ...)                                                                          \
    enum xop_status binary_##name##_cpu_forward(const struct xop_launch *launch,                   \
                                                struct xop_error *error);                          \
    enum xop_status binary_##name##_cpu_backward(const struct xop_launch *launch,                  \
                                                 struct xop_error *error);
#include "kernels/binary.def"

#endif
