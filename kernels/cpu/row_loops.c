#include "kernels/cpu/row_loops.h"

#include "kernels/cpu/scalar.h"

#define SUM_LANES 16
#define SUM_BLOCK 1024

/* exp(y) for any y; results are subject to one rounding more above 0. */
static inline double exp_of(double y) {
    double e = scalar_exp_f64(fabs(y)).exp;
    return y > 0 ? 1 / e : e;
}

#define ISA_BODY "kernels/cpu/row_loops_body.h"
#include "kernels/cpu/isa.h"
