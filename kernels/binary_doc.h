/*
 * What the binary operators say of themselves, one text for each line of binary.def: the formula,
 * the gradients, and what comes of values at the edge. Part of binary.c.
 */
#ifndef KERNELS_BINARY_DOC_H
#define KERNELS_BINARY_DOC_H

#define SHAPES                                                                                     \
    "\n`x` and `b` have the same dtype and broadcast against each other as in NumPy and\n"         \
    "PyTorch. A gradient is summed over the dimensions along which its input was repeated.\n"      \
    "f16 and bf16 are computed in f32; sums are accumulated in f64, in an order that the\n"        \
    "shapes alone fix, and a result is rounded once, at the end.\n"

static const char add_doc[] =
    "`add` is the sum.\n\n"
    "    y = x + b\n"
    "    grad_x = grad_b = grad_y\n" SHAPES "\nBackward needs the shapes of x and b only.\n"
    "\n| x | b | y |\n| --- | --- | --- |\n"
    "| +inf | -inf | NaN |\n"
    "| NaN | any | NaN |\n";

static const char sub_doc[] =
    "`sub` is the difference.\n\n"
    "    y = x - b\n"
    "    grad_x = grad_y\n"
    "    grad_b = -grad_y\n" SHAPES "\nBackward needs the shapes of x and b only.\n"
    "\n| x | b | y |\n| --- | --- | --- |\n"
    "| +inf | +inf | NaN |\n"
    "| NaN | any | NaN |\n";

static const char mul_doc[] =
    "`mul` is the product.\n\n"
    "    y = x * b\n"
    "    grad_x = grad_y * b\n"
    "    grad_b = grad_y * x\n" SHAPES "\n| x | b | y |\n| --- | --- | --- |\n"
    "| 0 | +inf or -inf | NaN |\n"
    "| NaN | any | NaN |\n";

static const char div_doc[] =
    "`div` is the quotient, not rounded to a whole number.\n\n"
    "    y = x / b\n"
    "    grad_x = grad_y / b\n"
    "    grad_b = -grad_y * (x / b / b)\n" SHAPES "\n| x | b | y |\n| --- | --- | --- |\n"
    "| not 0 | +0 or -0 | +inf or -inf, by the signs |\n"
    "| 0 | 0 | NaN |\n"
    "| +inf or -inf | +inf or -inf | NaN |\n"
    "| NaN | any | NaN |\n";

static const char pow_doc[] =
    "`pow` is x to the power of b, as C's pow and PyTorch's.\n\n"
    "    y = x^b\n"
    "    grad_x = grad_y * (b * x^(b - 1)), and 0 where b = 0\n"
    "    grad_b = grad_y * (x^b * log(x)), and grad_y * 0 where x = 0 and b >= 0\n" SHAPES
    "\nThe powers in the gradients are computed anew, from x and b, so that their digits are\n"
    "those of the dtype computed in.\n"
    "\n| x | b | y | grad_x | grad_b |\n| --- | --- | --- | --- | --- |\n"
    "| any, also NaN | 0 | 1 | 0 | grad_y * log(x), but 0 for x = 0 |\n"
    "| 1 | any, also NaN | 1 | grad_y * b | 0; NaN for a NaN |\n"
    "| 0 | above 0 | 0 | grad_y * b * 0^(b - 1) | 0 |\n"
    "| 0 | below 0 | +inf, or -inf for x = -0 and an odd b | infinite | infinite |\n"
    "| below 0 | whole | x^b | grad_y * b * x^(b - 1) | NaN |\n"
    "| below 0 | not whole | NaN | NaN | NaN |\n";

static const char maximum_doc[] =
    "`maximum` is the larger of two.\n\n"
    "    y = x where x >= b, else b\n"
    "    grad_x = grad_y where x > b, grad_y / 2 where x = b, else 0\n"
    "    grad_b = grad_y where x < b, grad_y / 2 where x = b, else 0\n" SHAPES
    "\nWhere x or b is NaN, y is NaN and both gradients are grad_y, as PyTorch has them. Of\n"
    "+0 and -0, which are equal, y is x.\n";

static const char minimum_doc[] =
    "`minimum` is the smaller of two.\n\n"
    "    y = x where x <= b, else b\n"
    "    grad_x = grad_y where x < b, grad_y / 2 where x = b, else 0\n"
    "    grad_b = grad_y where x > b, grad_y / 2 where x = b, else 0\n" SHAPES
    "\nWhere x or b is NaN, y is NaN and both gradients are grad_y, as PyTorch has them. Of\n"
    "+0 and -0, which are equal, y is x.\n";

#undef SHAPES
#endif
