#include "kernels/cpu/unary_loops.h"

#include "kernels/cpu/unary_scalar.h"

#define ISA_BODY "kernels/cpu/unary_body.h"
#include "kernels/cpu/isa.h"
