/*
 * The documentation of the reductions, as `xopctl ops NAME` shows it. Included by fold.c alone.
 */
#ifndef KERNELS_FOLD_DOC_H
#define KERNELS_FOLD_DOC_H

#define FOLD_DOC_DIMS                                                                              \
    "`dim` names the dimensions that are reduced, in any order, from the end where negative; an\n" \
    "empty list, the default, is all of them. They are gone from `y`, or have extent 1 with\n"     \
    "`keepdim`. A scalar is reduced over nothing; for it `dim` may be 0 or -1.\n"                  \
    "\n"
#define FOLD_DOC_SUMS                                                                              \
    "\n"                                                                                           \
    "f16 and bf16 are computed in f32 or wider and a result is rounded once. The order in which\n" \
    "terms are taken depends on the shape alone.\n"                                                \
    "\n"

static const char sum_doc[] = "`sum` over any dimensions, as `torch.sum`, with the dtype of `x`.\n"
                              "\n"
                              "    y = sum_i x_i\n"
                              "\n" FOLD_DOC_DIMS "Gradient:\n"
                              "\n"
                              "    grad_x_i = grad_y\n" FOLD_DOC_SUMS "| the terms | y |\n"
                              "| --- | --- |\n"
                              "| none | 0 |\n"
                              "| a NaN, or infinities of both signs | NaN |\n";

static const char mean_doc[] =
    "`mean` over any dimensions, as `torch.mean`.\n"
    "\n"
    "    y = (sum_i x_i) / n\n"
    "\n"
    "for n terms. " FOLD_DOC_DIMS "Gradient:\n"
    "\n"
    "    grad_x_i = grad_y / n\n" FOLD_DOC_SUMS "| the terms | y |\n"
    "| --- | --- |\n"
    "| none | NaN |\n"
    "| a NaN, or infinities of both signs | NaN |\n"
    "| their sum exceeds the range of what is computed in | infinite |\n";

#define FOLD_DOC_TIES                                                                              \
    "Gradient, shared evenly by all terms that equal y, as `torch.amax` and `torch.amin` have\n"   \
    "it (`torch.max` along one dimension gives all of it to one of them):\n"                       \
    "\n"                                                                                           \
    "    grad_x_i = grad_y / m where x_i = y, for m such terms, else 0\n"                          \
    "\n"                                                                                           \
    "| the terms | y | grad_x |\n"                                                                 \
    "| --- | --- | --- |\n"                                                                        \
    "| none | refused | |\n"                                                                       \
    "| one is NaN | NaN | NaN, at all of them |\n"

static const char max_doc[] = "The largest over any dimensions, as `torch.amax`.\n"
                              "\n"
                              "    y = max_i x_i\n"
                              "\n" FOLD_DOC_DIMS FOLD_DOC_TIES;

static const char min_doc[] = "The smallest over any dimensions, as `torch.amin`.\n"
                              "\n"
                              "    y = min_i x_i\n"
                              "\n" FOLD_DOC_DIMS FOLD_DOC_TIES;

static const char prod_doc[] =
    "The product over any dimensions, as `torch.prod`, which takes one or all of them.\n"
    "\n"
    "    y = prod_i x_i\n"
    "\n" FOLD_DOC_DIMS "Gradient, also where terms are 0:\n"
    "\n"
    "    grad_x_i = grad_y prod_j x_j, for j other than i\n"
    "\n"
    "computed as the product of all terms that are not 0, divided by x_i; where that product\n"
    "leaves the range of what is computed in, the gradient is infinite, 0 or NaN.\n" FOLD_DOC_SUMS
    "| the terms | y |\n"
    "| --- | --- |\n"
    "| none | 1 |\n"
    "| one is NaN, or 0 and an infinity | NaN |\n";

static const char logsumexp_doc[] =
    "The logarithm of the sum of exponentials over any dimensions, as `torch.logsumexp`.\n"
    "\n"
    "    y = m + log(sum_i exp(x_i - m)),  m = max_i x_i\n"
    "\n" FOLD_DOC_DIMS "Gradient, computed from the result:\n"
    "\n"
    "    grad_x_i = grad_y exp(x_i - y)\n" FOLD_DOC_SUMS "| the terms | y | grad_x |\n"
    "| --- | --- | --- |\n"
    "| none | -inf | |\n"
    "| nothing but -inf | -inf | NaN |\n"
    "| +inf, no NaN | +inf | NaN there, 0 at finite ones |\n"
    "| one is NaN | NaN | NaN, at all of them |\n";

static const char var_doc[] =
    "The variance over any dimensions, as `torch.var`.\n"
    "\n"
    "    y = sum_i (x_i - mean)^2 / max(0, n - correction)\n"
    "\n"
    "for n terms and their mean. `correction` is 1 by default (Bessel's); 0 gives the mean\n"
    "squared distance. " FOLD_DOC_DIMS "Gradient:\n"
    "\n"
    "    grad_x_i = 2 grad_y (x_i - mean) / max(0, n - correction)\n" FOLD_DOC_SUMS
    "Backward finds the mean anew. Nothing is lost where the mean is large: no squares of it are\n"
    "subtracted.\n"
    "\n"
    "| the terms | y |\n"
    "| --- | --- |\n"
    "| none, or one with correction 1 | NaN |\n"
    "| n < correction, not all alike | +inf |\n"
    "| a NaN or an infinity | NaN |\n";

#endif
