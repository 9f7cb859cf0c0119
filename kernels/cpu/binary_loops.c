#include "kernels/cpu/binary_loops.h"

#include <math.h>

#define ISA_BODY "kernels/cpu/binary_body.h"
#include "kernels/cpu/isa.h"
