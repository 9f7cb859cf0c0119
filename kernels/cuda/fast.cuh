/*
 * The device's own approximations, with relative errors under 2^-22, for bf16, where exact ones
 * would take longer than the memory.
 */
#ifndef KERNELS_CUDA_FAST_CUH
#define KERNELS_CUDA_FAST_CUH

static __device__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Near 0, where exp(x) - 1 would cancel, Taylor's series up to x^7, whose next term is under 2^-22
 * of the result. */
static __device__ float fast_expm1(float x) {
    float series = fmaf(x, 1.0f / 5040, 1.0f / 720);
    series = fmaf(x, series, 1.0f / 120);
    series = fmaf(x, series, 1.0f / 24);
    series = fmaf(x, series, 1.0f / 6);
    series = fmaf(x, series, 0.5f);
    series = fmaf(x, series, 1.0f);
    return fabsf(x) < 0.5f ? x * series : fast_exp2(x * 1.4426950408889634f) - 1;
}

#endif
