/*
 * Where a thread is that computes one element of planes of rows.
 */
#ifndef KERNELS_CUDA_PLANE_CUH
#define KERNELS_CUDA_PLANE_CUH

#include "kernels/cuda/element.cuh"

struct plane_place {
    int64_t index, plane, row, column;
    bool active;

    __device__ plane_place(uint32_t tile, int64_t planes, int64_t rows, int64_t columns)
        : index((int64_t)tile * ELEMENT_BLOCK + threadIdx.x) {
        element_quotient line = element_divide(index, columns);
        element_quotient split = element_divide(line.quotient, rows);
        column = line.rest;
        row = split.rest;
        plane = split.quotient;
        active = plane < planes;
    }
};

static inline uint64_t plane_tiles(int64_t planes, int64_t rows, int64_t columns) {
    int64_t n = planes * rows * columns;
    return (uint64_t)(n / ELEMENT_BLOCK + (n % ELEMENT_BLOCK != 0));
}

#endif
