/*
 * f16 and bf16 to and from f32, one element at a time, rounding to nearest, ties to even. NaN stays
 * NaN, with its sign and the upper bits of its payload, and is made quiet, as the F16C instructions
 * do. Written without branches, so that a loop over them vectorises. They rely on the default
 * floating-point environment (round to nearest, subnormals kept).
 */
#ifndef KERNELS_CPU_CONVERT_H
#define KERNELS_CPU_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline float convert_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t convert_bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float convert_f16_to_f32(uint16_t half) {
    uint32_t sign = (half & 0x8000u) << 16, rest = (half & 0x7fffu) << 13;
    /* The exponent's bias differs by 112; multiplying by 2^112 mends it and makes subnormals
     * normal, exactly. */
    uint32_t finite = convert_bits_of(convert_float_of(rest) * 0x1p112f);
    uint32_t special = rest | 0x7f800000u | (rest > 0x0f800000u ? 0x00400000u : 0);
    return convert_float_of(sign | (rest >= 0x0f800000u ? special : finite));
}

static inline uint16_t convert_f32_to_f16(float value) {
    uint32_t bits = convert_bits_of(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    uint32_t normal = (rest - (112u << 23) + 0xfffu + (rest >> 13 & 1)) >> 13;
    /* Adding 0.5 leaves the value in units of 2^-24, f16's smallest, rounded by the addition. */
    uint32_t subnormal = convert_bits_of(convert_float_of(rest) + 0.5f) - convert_bits_of(0.5f);
    uint32_t nan = 0x7e00u | (rest >> 13 & 0x3ffu);
    uint32_t half = rest < 0x38800000u ? subnormal : normal;
    half = rest >= 0x477ff000u ? 0x7c00u : half; /* 65520 and above round to infinity */
    half = rest > 0x7f800000u ? nan : half;
    return (uint16_t)(sign | half);
}

static inline float convert_bf16_to_f32(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    return convert_float_of(bits | ((bits & 0x7fffffffu) > 0x7f800000u ? 0x00400000u : 0));
}

static inline uint16_t convert_f32_to_bf16(float value) {
    uint32_t bits = convert_bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#endif
