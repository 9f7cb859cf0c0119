/*
 * The launch functions of the operators that come with the CUDA backend, and what they share. Each
 * is called on the loop's thread and only enqueues.
 */
#ifndef KERNELS_CUDA_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_H

#include <xop/op.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAUNCH_CUDA_MAX_GROUP 256u /* calls a launch of ours takes */

enum xop_status square_bias_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status square_bias_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

/* Calls of linear and of matmul that a launch takes: each has its own workspace. */
#define LAUNCH_CUDA_MAX_PRODUCTS 8u
enum xop_status linear_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status linear_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status matmul_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status matmul_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status sgd_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status adam_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status adamw_cuda_forward(const struct xop_launch *launch, struct xop_error *error);

enum xop_status sigmoid_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status sigmoid_cuda_backward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status sigmoid_complement_cuda_forward(const struct xop_launch *launch,
                                                struct xop_error *error);
enum xop_status sigmoid_complement_cuda_backward(const struct xop_launch *launch,
                                                 struct xop_error *error);
enum xop_status bose_einstein_cuda_forward(const struct xop_launch *launch,
                                           struct xop_error *error);
enum xop_status bose_einstein_cuda_backward(const struct xop_launch *launch,
                                            struct xop_error *error);

enum xop_status cast_cuda_forward(const struct xop_launch *launch, struct xop_error *error);
enum xop_status cast_cuda_backward(const struct xop_launch *launch, struct xop_error *error);

#define UNARY(name, ...)                                                                           \
    enum xop_status unary_##name##_cuda_forward(const struct xop_launch *launch,                   \
                                                struct xop_error *error);                          \
    enum xop_status unary_##name##_cuda_backward(const struct xop_launch *launch,                  \
                                                 struct xop_error *error);
#include "kernels/unary.def"

#define BINARY(name, ...)                                                                          \
    enum xop_status binary_##name##_cuda_forward(const struct xop_launch *launch,                  \
                                                 struct xop_error *error);                         \
    enum xop_status binary_##name##_cuda_backward(const struct xop_launch *launch,                 \
                                                  struct xop_error *error);
#include "kernels/binary.def"

/* Of the copy operator. Tensors of more than COPY_SMALL bytes may have addresses of the host. */
enum xop_status copy_cuda_forward(const struct xop_launch *launch, struct xop_error *error);

/* Loads the kernels of a family onto the current device, which CUDA would else do at the first
 * launch of each. Fails where this build holds no code for the device. */
enum xop_status activation_preload(struct xop_error *error);
enum xop_status cast_preload(struct xop_error *error);
enum xop_status unary_forward_preload(struct xop_error *error);
enum xop_status unary_backward_preload(struct xop_error *error);
enum xop_status binary_preload(struct xop_error *error);
enum xop_status square_bias_preload(struct xop_error *error);
enum xop_status optimizer_preload(struct xop_error *error);
enum xop_status copy_preload(struct xop_error *error);
enum xop_status probe_preload(struct xop_error *error);

#ifdef __cplusplus
}
#endif
#endif
