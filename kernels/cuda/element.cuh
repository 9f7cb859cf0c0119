/*
 * Elements as kernels see them: the type each dtype is computed in, conversions, and vectors of 16
 * bytes, the widest access of a thread. f16 and bf16 are computed in f32 and rounded once.
 *
 * Loads and stores are marked as streaming, since nothing here is read twice. Loads are not marked
 * as read-only: a result may take its input's place.
 *
 * Everything is compiled with -fmad=false, so that x*x + b is rounded twice as on the CPU; where a
 * fused operation is wanted, it is written as fma().
 */
#ifndef KERNELS_CUDA_ELEMENT_CUH
#define KERNELS_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <xop/types.h>

#define ELEMENT_BLOCK 256 /* threads of a block, everywhere */

template <class T> struct element;

template <> struct element<float> {
    using compute = float;
    static __device__ float load(float value) { return value; }
    static __device__ float store(float value) { return value; }
    static __device__ float round(double value) { return __double2float_rn(value); }
};

template <> struct element<double> {
    using compute = double;
    static __device__ double load(double value) { return value; }
    static __device__ double store(double value) { return value; }
    static __device__ double round(double value) { return value; }
};

template <> struct element<__half> {
    using compute = float;
    static __device__ float load(__half value) { return __half2float(value); }
    static __device__ __half store(float value) { return __float2half_rn(value); }
    static __device__ __half round(double value) { return __double2half(value); }
    static __device__ float2 load_pair(uint32_t bits) {
        __half2_raw raw = {(unsigned short)bits, (unsigned short)(bits >> 16)};
        return __half22float2(__half2(raw));
    }
    static __device__ uint32_t store_pair(float low, float high) {
        __half2_raw raw = __floats2half2_rn(low, high);
        return raw.x | (uint32_t)raw.y << 16;
    }
};

template <> struct element<__nv_bfloat16> {
    using compute = float;
    static __device__ float load(__nv_bfloat16 value) { return __bfloat162float(value); }
    static __device__ __nv_bfloat16 store(float value) { return __float2bfloat16_rn(value); }
    static __device__ __nv_bfloat16 round(double value) { return __double2bfloat16(value); }
    static __device__ float2 load_pair(uint32_t bits) {
        return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
    }
    static __device__ uint32_t store_pair(float low, float high) {
        __nv_bfloat162_raw raw = __floats2bfloat162_rn(low, high);
        return raw.x | (uint32_t)raw.y << 16;
    }
};

template <int BYTES> struct bits_of;
template <> struct bits_of<2> { using type = uint16_t; };
template <> struct bits_of<4> { using type = uint32_t; };
template <> struct bits_of<8> { using type = uint64_t; };

/* 16 bytes of elements, as they lie in memory and as they are computed with. */
template <class T> struct vector {
    using compute = typename element<T>::compute;
    using bits = typename bits_of<sizeof(T)>::type;
    static constexpr int size = 16 / sizeof(T);

    static __device__ void unpack(uint4 raw, compute (&value)[size]) {
        const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 pair = element<T>::load_pair(word[i]);
                value[2 * i] = pair.x;
                value[2 * i + 1] = pair.y;
            }
        } else if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                value[i] = __uint_as_float(word[i]);
        } else {
            value[0] = __hiloint2double((int)word[1], (int)word[0]);
            value[1] = __hiloint2double((int)word[3], (int)word[2]);
        }
    }

    static __device__ uint4 pack(const compute (&value)[size]) {
        uint32_t word[4];
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = element<T>::store_pair(value[2 * i], value[2 * i + 1]);
        } else if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = __float_as_uint(value[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                word[2 * i] = (uint32_t)__double2loint(value[i]);
                word[2 * i + 1] = (uint32_t)__double2hiint(value[i]);
            }
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }

    /* The first `count` of a vector's elements, one by one: where the address is not a multiple of
     * 16, or the array ends inside. What is not there is 0. Bits are moved as they are. */
    static __device__ uint4 gather(const T *from, int count) {
        bits item[size];
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < size; i++)
            item[i] = i < count ? ((const bits *)from)[i] : bits(0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (sizeof(T) == 2)
                word[i] = item[2 * i] | (uint32_t)item[2 * i + 1] << 16;
            else if constexpr (sizeof(T) == 4)
                word[i] = item[i];
            else
                word[i] = (uint32_t)(item[i / 2] >> i % 2 * 32);
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }

    static __device__ void scatter(T *to, int count, uint4 raw) {
        const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < size; i++) {
            if (i >= count)
                break;
            if constexpr (sizeof(T) == 2)
                ((bits *)to)[i] = (bits)(word[i / 2] >> i % 2 * 16);
            else if constexpr (sizeof(T) == 4)
                ((bits *)to)[i] = word[i];
            else
                ((bits *)to)[i] = word[2 * i] | (uint64_t)word[2 * i + 1] << 32;
        }
    }

    static __device__ uint4 load(const T *from, int count, bool aligned) {
        return aligned && count == size ? __ldcs((const uint4 *)from) : gather(from, count);
    }

    static __device__ void store(T *to, int count, bool aligned, uint4 raw) {
        if (aligned && count == size)
            __stcs((uint4 *)to, raw);
        else
            scatter(to, count, raw);
    }
};

static inline bool element_aligned(const void *pointer) { return ((uintptr_t)pointer & 15) == 0; }

/* a / b and the remainder, for a >= 0 and b > 0: in 32 bits wherever they fit, which is several
 * times faster. */
struct element_quotient {
    int64_t quotient, rest;
};
static __device__ inline element_quotient element_divide(int64_t a, int64_t b) {
    element_quotient result;
    if (((a | b) >> 32) == 0) {
        uint32_t q = (uint32_t)a / (uint32_t)b;
        result.quotient = q;
        result.rest = (uint32_t)a - q * (uint32_t)b;
    } else {
        result.quotient = a / b;
        result.rest = a - result.quotient * b;
    }
    return result;
}

#endif
