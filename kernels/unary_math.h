/*
 * What lines of unary.def are made of where a line is not enough, for both backends. Included once
 * for each type computed in, by whoever computes with them, after it has defined
 *
 *     UNARY_BITS  32 or 64, the type's size
 *     R           the type
 *     FUNCTION    what precedes a function: static inline, or static __device__
 *     F(f)        the name of f for this type
 *     M(f)        the C library's f for this type
 *     K(c)        a constant of it
 *     MULTIPLY_ADD(a, b, c)  a * b + c, rounded once or twice
 *
 * and functions F(exp), F(log), F(erf), F(sin), F(cos) of any x, and of arguments that are not
 * below 0, or NaN,
 *
 *     F(exp_minus)(a)       exp(-a)
 *     F(expm1_minus)(a)     exp(-a) - 1
 *     F(log1p_fraction)(e)  log(1 + e) for e <= 1
 *     F(square_rest)(a, s)  a * a - s exactly, s being the rounded square of a < 64
 *     F(quotient)(a, b)     a / b for b from 1 to 64
 *
 * Everything is made of exponentials of what is not above 0, so that nothing overflows on the way,
 * and without branches, so that loops vectorise. No include guard.
 */

FUNCTION R F(clamp)(R x, R low, R high) {
    R above = x < low ? low : x;
    return above > high ? high : above;
}

/* Of x <= 0; what they give elsewhere is not used, but must be cheap. */
FUNCTION R F(exp_below)(R x) { return F(exp_minus)(M(fabs)(x)); }
FUNCTION R F(expm1_below)(R x) { return F(expm1_minus)(M(fabs)(x)); }

FUNCTION R F(sigmoid)(R x) {
    R e = F(exp_minus)(M(fabs)(x));
    return F(quotient)(x < 0 ? e : K(1), 1 + e);
}

FUNCTION R F(silu_slope)(R x) {
    R e = F(exp_minus)(M(fabs)(x)), whole = F(quotient)(K(1), 1 + e), rest = e * whole;
    R s = x < 0 ? rest : whole, other = x < 0 ? whole : rest;
    return s * (1 + x * other);
}

/* (1 - exp(-2a)) / (1 + exp(-2a)) with x's sign. */
FUNCTION R F(tanh)(R x) {
    R m = F(expm1_minus)(2 * M(fabs)(x));
    return M(copysign)(F(quotient)(m, 2 + m), x);
}

FUNCTION R F(log1p_exp)(R x) {
    return (x > 0 ? x : K(0)) + F(log1p_fraction)(F(exp_minus)(M(fabs)(x)));
}

/* exp(-half * x*x), half being 1 or 1/2, where the rounding of the square would cost digits. It has
 * vanished long before x is limited. */
FUNCTION R F(exp_square)(R x, R half) {
    R a = M(fabs)(x), limited = a > 40 ? K(40) : a, square = limited * limited;
    R e = F(exp_minus)(half * square);
    return e - e * (half * F(square_rest)(limited, square));
}

/* The normal distribution's cumulative function of -a, divided by exp(-a*a/2), for a from 0 on:
 * a polynomial in t = (a - 4) / (a + 4), which interpolates the function times (a + 4) at
 * Chebyshev's points of the range in which the exponential does not vanish (a < 15 in f32 and 39.5
 * in f64), to a relative error of 2^-28 and 2^-58. */
FUNCTION R F(normal_tail)(R a) {
    R limited = a > 40 ? K(40) : a, s = F(quotient)(K(1), limited + 4), t = 1 - 8 * s;
#if UNARY_BITS == 32
    R sum = K(-0x1.b07cfp-15);
    sum = MULTIPLY_ADD(sum, t, K(-0x1.e61df8p-13));
    sum = MULTIPLY_ADD(sum, t, K(0x1.66ba3ep-13));
    sum = MULTIPLY_ADD(sum, t, K(0x1.af48ccp-10));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.c95a1p-9));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.ee7c98p-8));
    sum = MULTIPLY_ADD(sum, t, K(0x1.eec6cep-5));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.7dfedep-3));
    sum = MULTIPLY_ADD(sum, t, K(0x1.8c6dbcp-2));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.373e3cp-1));
    sum = MULTIPLY_ADD(sum, t, K(0x1.82b4bcp-1));
#else
    R sum = K(-0x1.54c9d08dcd918p-37);
    sum = MULTIPLY_ADD(sum, t, K(-0x1.88b60736add1ep-31));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.4cf0555f75d0dp-29));
    sum = MULTIPLY_ADD(sum, t, K(0x1.082acbefa758ep-29));
    sum = MULTIPLY_ADD(sum, t, K(0x1.4c2b2f06494bdp-26));
    sum = MULTIPLY_ADD(sum, t, K(0x1.c4eb766fd25aap-27));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.6d191cf117105p-24));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.4c5e094aadea7p-23));
    sum = MULTIPLY_ADD(sum, t, K(0x1.237d046dcd5d1p-22));
    sum = MULTIPLY_ADD(sum, t, K(0x1.122bfbe416168p-20));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.51f89010bc508p-21));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.8d4a0a88992a9p-18));
    sum = MULTIPLY_ADD(sum, t, K(0x1.80b985f83b582p-21));
    sum = MULTIPLY_ADD(sum, t, K(0x1.26d09011fc492p-15));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.001ecb7283e83p-19));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.e4a42501621fep-13));
    sum = MULTIPLY_ADD(sum, t, K(0x1.17a4ae7bcc501p-13));
    sum = MULTIPLY_ADD(sum, t, K(0x1.ab825fbf67f7ep-10));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.c81719d5b4cc6p-9));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.ee276104786e7p-8));
    sum = MULTIPLY_ADD(sum, t, K(0x1.eec4cc3e4d76ep-5));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.7dff2bff683b5p-3));
    sum = MULTIPLY_ADD(sum, t, K(0x1.8c6dbf2cfc2b1p-2));
    sum = MULTIPLY_ADD(sum, t, K(-0x1.373e3a893c28ap-1));
    sum = MULTIPLY_ADD(sum, t, K(0x1.82b4bb8c94dcep-1));
#endif
    return sum * s;
}

/* x times the cumulative function, which has all its digits also where it is small. */
FUNCTION R F(gelu)(R x) {
    R tail = F(exp_square)(x, K(0.5)) * F(normal_tail)(M(fabs)(x));
    return x * (x < 0 ? tail : 1 - tail);
}

FUNCTION R F(gelu_slope)(R x) {
    R bell = F(exp_square)(x, K(0.5)), tail = bell * F(normal_tail)(M(fabs)(x));
    return (x < 0 ? tail : 1 - tail) + x * (K(0.39894228040143267794) * bell);
}

/* Twice the argument of its tanh: 2 * sqrt(2 / pi) * (x + 0.044715 x^3). (1 + tanh(z)) / 2 is
 * sigmoid(2 z). */
FUNCTION R F(gelu_twice)(R x) { return K(1.59576912160573071176) * x * (1 + K(0.044715) * x * x); }

FUNCTION R F(gelu_tanh)(R x) { return x * F(sigmoid)(F(gelu_twice)(x)); }

FUNCTION R F(gelu_tanh_slope)(R x) {
    R z = F(gelu_twice)(x), e = F(exp_minus)(M(fabs)(z)), whole = F(quotient)(K(1), 1 + e),
      bend = e * whole * whole;
    R inner = K(1.59576912160573071176) * (1 + K(0.134145) * x * x);
    /* Where the sigmoid is flat, x^2 may have overflowed. */
    return (z < 0 ? e * whole : whole) + x * (bend > 0 ? bend * inner : bend);
}

/* tanh(log(1 + exp(x))) = n / (n + 2) with n = exp(x) * (exp(x) + 2); above 0, numerator and
 * denominator are multiplied by exp(-2x). */
FUNCTION R F(tanh_softplus)(R x) {
    R e = F(exp_minus)(M(fabs)(x));
    R n = x > 0 ? 1 + 2 * e : e * (e + 2);
    return F(quotient)(n, n + (x > 0 ? 2 * e * e : K(2)));
}

FUNCTION R F(mish_slope)(R x) {
    R e = F(exp_minus)(M(fabs)(x));
    R n = x > 0 ? 1 + 2 * e : e * (e + 2), rest = x > 0 ? 2 * e * e : K(2);
    R sum = n + rest, t = F(quotient)(n, sum), s = F(quotient)(x > 0 ? K(1) : e, 1 + e);
    return t + x * (s * F(quotient)(rest, sum) * (1 + t));
}

#undef UNARY_BITS
