#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/loops.h"

/* A 16-bit format: bits of its mantissa, exponent of its smallest normal number, the value from
 * which on rounding gives infinity. */
struct format {
    int mantissa, smallest;
    double overflow;
    uint32_t infinity;
};
static const struct format f16 = {10, -14, 65520, 0x7c00};
static const struct format bf16 = {7, -126, 0x1.ffp127, 0x7f80};

static double slow_decode(const struct format *f, uint16_t half) {
    uint32_t rest = half & 0x7fffu, mantissa = rest & ((1u << f->mantissa) - 1);
    int exponent = (int)(rest >> f->mantissa);
    double value;

    if (rest > f->infinity)
        return (double)NAN;
    if (rest == f->infinity)
        value = (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, f->smallest - f->mantissa);
    else
        value = ldexp(mantissa + (1u << f->mantissa), exponent - 1 + f->smallest - f->mantissa);
    return half & 0x8000u ? -value : value;
}

/* By rounding in the unit that the value's exponent gives; rint rounds ties to even. */
static uint16_t slow_encode(const struct format *f, double value) {
    uint32_t sign = signbit(value) ? 0x8000u : 0;
    double size = fabs(value), units;
    int exponent = f->smallest;

    if (size >= f->overflow)
        return (uint16_t)(sign | f->infinity);
    if (size >= ldexp(1, f->smallest))
        exponent = ilogb(size);
    units = rint(ldexp(size, f->mantissa - exponent));
    /* A mantissa that rounds up to the next power of two carries into the exponent by itself. */
    return (uint16_t)(sign |
                      (((uint32_t)(exponent - f->smallest) << f->mantissa) + (uint32_t)units));
}

struct conversion {
    const struct format *format;
    void (*load)(float *to, const uint16_t *from, int64_t n);
    void (*store)(uint16_t *to, const float *from, int64_t n);
};

static void scalar_load_f16(float *to, const uint16_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = convert_f16_to_f32(from[i]);
}
static void scalar_store_f16(uint16_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = convert_f32_to_f16(from[i]);
}
static void scalar_load_bf16(float *to, const uint16_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = convert_bf16_to_f32(from[i]);
}
static void scalar_store_bf16(uint16_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = convert_f32_to_bf16(from[i]);
}

/* Calls check for the plain functions and for those of every vector extension here. */
static void each_conversion(void (*check)(const struct conversion *conversion)) {
    struct conversion c = {&f16, scalar_load_f16, scalar_store_f16};
    const struct loops *loops;
    check(&c);
    c = (struct conversion){&bf16, scalar_load_bf16, scalar_store_bf16};
    check(&c);
    for (uint32_t i = 0; (loops = loops_supported(i)); i++) {
        c = (struct conversion){&f16, loops->f16_to_f32, loops->f32_to_f16};
        check(&c);
        c = (struct conversion){&bf16, loops->bf16_to_f32, loops->f32_to_bf16};
        check(&c);
    }
}

#define ALL 65536

static void check_all_values(const struct conversion *c) {
    static uint16_t halves[ALL], back[ALL];
    static float values[ALL];

    for (uint32_t i = 0; i < ALL; i++)
        halves[i] = (uint16_t)i;
    c->load(values, halves, ALL);
    c->store(back, values, ALL);
    for (uint32_t i = 0; i < ALL; i++) {
        double want = slow_decode(c->format, halves[i]);
        if (isnan(want)) {
            assert_true(isnan(values[i]));
            assert_true((back[i] & 0x7fffu) > c->format->infinity);
            assert_int_equal(back[i] & 0x8000u, halves[i] & 0x8000u);
        } else {
            assert_true((double)values[i] == want);
            assert_int_equal(signbit(values[i]) != 0, halves[i] >> 15);
            assert_int_equal(back[i], halves[i]);
        }
    }
}

static void every_value_survives_a_round_trip(void **state) {
    (void)state;
    each_conversion(check_all_values);
}

static void check_rounding(const struct conversion *c, float *values, int64_t n) {
    static uint16_t halves[4 * ALL];
    c->store(halves, values, n);
    for (int64_t i = 0; i < n; i++) {
        if (isnan(values[i]))
            assert_true((halves[i] & 0x7fffu) > c->format->infinity);
        else
            assert_int_equal(halves[i], slow_encode(c->format, (double)values[i]));
    }
}

/* The middle between every two neighbours, and what lies just beside it. */
static void check_middles(const struct conversion *c) {
    static float values[4 * ALL];
    int64_t n = 0;
    for (uint32_t i = 0; i < c->format->infinity; i++) {
        double low = slow_decode(c->format, (uint16_t)i);
        double high = i + 1 < c->format->infinity ? slow_decode(c->format, (uint16_t)(i + 1))
                                                  : 2 * c->format->overflow - low;
        float middle = (float)((low + high) / 2);
        values[n++] = middle;
        values[n++] = nextafterf(middle, 0);
        values[n++] = nextafterf(middle, INFINITY);
        values[n++] = -middle;
    }
    check_rounding(c, values, n);
}

static void ties_round_to_even_and_the_rest_to_the_nearest(void **state) {
    (void)state;
    each_conversion(check_middles);
}

static void check_random(const struct conversion *c) {
    static float values[ALL];
    uint32_t bits = 1;
    for (int64_t i = 0; i < ALL; i++) {
        bits = bits * 1664525u + 1013904223u;
        values[i] = convert_float_of(bits ^ bits >> 15);
    }
    check_rounding(c, values, ALL);
}

static void any_bit_pattern_rounds_to_the_nearest(void **state) {
    (void)state;
    each_conversion(check_random);
}

/* Vector loops have tails: each length must touch its own elements only. */
static void check_lengths(const struct conversion *c) {
    for (int64_t n = 0; n < 40; n++) {
        uint16_t halves[41], back[41];
        float values[41];
        for (int64_t i = 0; i < 41; i++) {
            halves[i] = (uint16_t)(0x3c00 + i);
            values[i] = -1;
            back[i] = 0xffff;
        }
        c->load(values, halves, n);
        c->store(back, values, n);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(back[i], halves[i]);
        assert_true(values[n] == -1.0f);
        assert_int_equal(back[n], 0xffff);
    }
}

static void no_length_touches_what_lies_behind(void **state) {
    (void)state;
    each_conversion(check_lengths);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_survives_a_round_trip),
        cmocka_unit_test(ties_round_to_even_and_the_rest_to_the_nearest),
        cmocka_unit_test(any_bit_pattern_rounds_to_the_nearest),
        cmocka_unit_test(no_length_touches_what_lies_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
