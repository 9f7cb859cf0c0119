/* The backward pass of the unary operators; each in a file of its own, so that they compile at
 * once. */
#include "kernels/cuda/unary.cuh"

#define UNARY(name, ...)                                                                           \
    enum xop_status unary_##name##_cuda_backward(const struct xop_launch *launch,                  \
                                                 struct xop_error *error) {                        \
        return unary_run<XOP_BACKWARD>(UNARY_##name, launch, error);                               \
    }
#include "kernels/unary.def"

enum xop_status unary_backward_preload(struct xop_error *error) {
    return table_builder<unary_family<XOP_BACKWARD>>::preload(error);
}
