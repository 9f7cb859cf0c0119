/*
 * What the unary operators say of themselves, one text for each line of unary.def: the formula, the
 * gradient, and what comes of values at the edge. Part of unary.c.
 */
#ifndef KERNELS_UNARY_DOC_H
#define KERNELS_UNARY_DOC_H

#define COMPUTED "\nf16 and bf16 are computed in f32 and rounded once.\n"
#define EDGES COMPUTED "\n| x | y | grad_x |\n| --- | --- | --- |\n"
#define NAN_GIVES_NAN "| NaN | NaN | NaN |\n"

static const char relu_doc[] =
    "`relu` is the rectifier: x above 0, and 0 below, as PyTorch's relu.\n\n"
    "    y = max(x, 0)\n"
    "    grad_x = grad_y where y > 0, else 0\n" EDGES "| +0, -0 | +0 | 0 |\n"
    "| +inf | +inf | grad_y |\n"
    "| -inf | +0 | 0 |\n"
    "| NaN | NaN | grad_y |\n";

static const char leaky_relu_doc[] =
    "`leaky_relu` is x above 0, and a small multiple of it below, as PyTorch's leaky_relu.\n\n"
    "    y = x for x > 0, else negative_slope * x\n"
    "    grad_x = grad_y for x > 0, else negative_slope * grad_y\n" EDGES
    "| +0, -0 | 0 | negative_slope * grad_y |\n"
    "| -inf | -inf, for a negative_slope above 0 | negative_slope * grad_y |\n"
    "| NaN | NaN | negative_slope * grad_y |\n"
    "\nThe slope is rounded to the dtype computed in.\n";

static const char elu_doc[] =
    "`elu` is the exponential linear unit, as PyTorch's elu.\n\n"
    "    y = x for x > 0, else alpha * (exp(x) - 1)\n"
    "    grad_x = grad_y for x > 0, else grad_y * alpha * exp(x)\n" EDGES
    "| +0, -0 | 0 | alpha * grad_y |\n"
    "| -inf | -alpha | 0 |\n"
    "| NaN | NaN | NaN |\n"
    "\nexp(x) - 1 keeps its digits near 0. alpha is rounded to the dtype computed in.\n";

static const char gelu_doc[] =
    "`gelu` is the Gaussian error linear unit, as PyTorch's gelu.\n\n"
    "    approximate = \"none\":  y = x * (1 + erf(x / sqrt(2))) / 2\n"
    "    approximate = \"tanh\":  y = x * (1 + tanh(u)) / 2,\n"
    "                           u = sqrt(2 / pi) * (x + 0.044715 * x^3)\n"
    "    grad_x = grad_y * dy/dx of the same form\n" EDGES "| +0, -0 | +0, -0 | grad_y / 2 |\n"
    "| +inf | +inf | NaN |\n"
    "| -inf | NaN | NaN |\n" NAN_GIVES_NAN
    "\nThe first form keeps its digits in the tail below 0, where the sum of the formula\n"
    "cancels.\n";

static const char silu_doc[] =
    "`silu` is x times the logistic function, also known as swish, as PyTorch's silu.\n\n"
    "    y = x * s,  s = 1 / (1 + exp(-x))\n"
    "    grad_x = grad_y * s * (1 + x * (1 - s))\n" EDGES "| +0, -0 | +0, -0 | grad_y / 2 |\n"
    "| +inf | +inf | NaN |\n"
    "| -inf | NaN | NaN |\n" NAN_GIVES_NAN;

static const char tanh_doc[] =
    "`tanh` is the hyperbolic tangent.\n\n"
    "    y = (exp(x) - exp(-x)) / (exp(x) + exp(-x))\n"
    "    grad_x = grad_y * (1 - y*y)\n" EDGES "| +0, -0 | +0, -0 | grad_y |\n"
    "| +inf | 1 | 0 |\n"
    "| -inf | -1 | 0 |\n" NAN_GIVES_NAN "\nThe gradient is taken from the rounded y.\n";

static const char softplus_doc[] =
    "`softplus` is a smooth rectifier, as PyTorch's softplus.\n\n"
    "    y = x for beta * x > threshold, else log(1 + exp(beta * x)) / beta\n"
    "    grad_x = grad_y for beta * x > threshold, else grad_y / (1 + exp(-beta * x))\n" EDGES
    "| +inf | +inf | grad_y |\n"
    "| -inf | +0 | 0 |\n" NAN_GIVES_NAN
    "\nWith beta = 1 unless said otherwise. Nothing overflows on the way, whatever the\n"
    "threshold. Attributes are rounded to the dtype computed in.\n";

static const char exp_doc[] =
    "`exp` is the exponential function.\n\n"
    "    y = e^x\n"
    "    grad_x = grad_y * y\n" EDGES "| +0, -0 | 1 | grad_y |\n"
    "| +inf | +inf | grad_y * inf |\n"
    "| -inf | +0 | 0 |\n" NAN_GIVES_NAN "\nThe gradient is taken from the rounded y.\n";

static const char log_doc[] = "`log` is the natural logarithm.\n\n"
                              "    y = log(x)\n"
                              "    grad_x = grad_y / x\n" EDGES "| +0, -0 | -inf | grad_y / x |\n"
                              "| below 0 | NaN | grad_y / x |\n"
                              "| +inf | +inf | 0 |\n" NAN_GIVES_NAN;

static const char sqrt_doc[] =
    "`sqrt` is the square root.\n\n"
    "    y = sqrt(x)\n"
    "    grad_x = grad_y / (2 * y)\n" EDGES "| +0, -0 | +0, -0 | grad_y / y |\n"
    "| below 0 | NaN | NaN |\n"
    "| +inf | +inf | 0 |\n" NAN_GIVES_NAN "\nThe gradient is taken from the rounded y.\n";

static const char rsqrt_doc[] =
    "`rsqrt` is the reciprocal of the square root.\n\n"
    "    y = 1 / sqrt(x)\n"
    "    grad_x = -grad_y * y^3 / 2\n" EDGES "| +0, -0 | +inf, -inf | infinite |\n"
    "| below 0 | NaN | NaN |\n"
    "| +inf | +0 | 0 |\n" NAN_GIVES_NAN "\nThe gradient is taken from the rounded y.\n";

static const char abs_doc[] =
    "`abs` is the absolute value.\n\n"
    "    y = |x|\n"
    "    grad_x = grad_y for x > 0, -grad_y for x < 0, else 0\n" EDGES "| +0, -0 | +0 | 0 |\n"
    "| +inf, -inf | +inf | grad_y, -grad_y |\n"
    "| NaN | NaN | 0 |\n";

static const char neg_doc[] = "`neg` is x with its sign turned.\n\n"
                              "    y = -x\n"
                              "    grad_x = -grad_y\n"
                              "\nOf everything, zeros and infinities included. NaN stays NaN.\n";

static const char sin_doc[] =
    "`sin` is the sine, of radians.\n\n"
    "    y = sin(x)\n"
    "    grad_x = grad_y * cos(x)\n" EDGES "| +0, -0 | +0, -0 | grad_y |\n"
    "| +inf, -inf | NaN | NaN |\n" NAN_GIVES_NAN
    "\nLarge arguments are reduced with all digits of pi that they need.\n";

static const char cos_doc[] =
    "`cos` is the cosine, of radians.\n\n"
    "    y = cos(x)\n"
    "    grad_x = -grad_y * sin(x)\n" EDGES "| +0, -0 | 1 | 0 |\n"
    "| +inf, -inf | NaN | NaN |\n" NAN_GIVES_NAN
    "\nLarge arguments are reduced with all digits of pi that they need.\n";

static const char erf_doc[] = "`erf` is the error function.\n\n"
                              "    y = 2 / sqrt(pi) * the integral of exp(-t*t) from 0 to x\n"
                              "    grad_x = grad_y * 2 / sqrt(pi) * exp(-x*x)\n" EDGES
                              "| +0, -0 | +0, -0 | 2 / sqrt(pi) * grad_y |\n"
                              "| +inf | 1 | 0 |\n"
                              "| -inf | -1 | 0 |\n" NAN_GIVES_NAN;

static const char clamp_doc[] =
    "`clamp` is x held between two bounds, as PyTorch's clamp.\n\n"
    "    y = min(max(x, min), max)\n"
    "    grad_x = grad_y for min <= x <= max, else 0\n" EDGES
    "| +inf | max | grad_y where max is +inf, else 0 |\n"
    "| -inf | min | grad_y where min is -inf, else 0 |\n"
    "| NaN | NaN | 0 |\n"
    "\nWhere min is above max, y is max. Bounds are rounded to the dtype computed in, and\n"
    "by default there are none.\n";

static const char hardswish_doc[] =
    "`hardswish` is silu by straight lines, as PyTorch's hardswish.\n\n"
    "    y = x * min(max(x + 3, 0), 6) / 6\n"
    "    grad_x = 0 for x < -3, grad_y for x >= 3, else grad_y * (x / 3 + 1/2)\n" EDGES
    "| +0, -0 | +0, -0 | grad_y / 2 |\n"
    "| +inf | +inf | grad_y |\n"
    "| -inf | NaN | 0 |\n" NAN_GIVES_NAN;

static const char mish_doc[] =
    "`mish` is x times the tanh of its softplus, as PyTorch's mish.\n\n"
    "    y = x * t,  t = tanh(log(1 + exp(x)))\n"
    "    grad_x = grad_y * (t + x * s * (1 - t*t)),  s = 1 / (1 + exp(-x))\n" EDGES
    "| +0, -0 | +0, -0 | 0.6 * grad_y |\n"
    "| +inf | +inf | NaN |\n"
    "| -inf | NaN | NaN |\n" NAN_GIVES_NAN;

#undef COMPUTED
#undef EDGES
#undef NAN_GIVES_NAN

#endif
