/*
 * Includes the file that TYPED_BODY names once for each floating dtype, for loops that pick
 * elements one by one. There, ELEMENT is how an element lies in memory, LOAD(e) makes it a double,
 * STORE(d) rounds a double to it once, and TYPED(name) gives a name of its own. TYPED_TABLE(name)
 * is an initialiser that has them by dtype, of an array of typed_loop. No include guard.
 */
#include "kernels/cpu/convert.h"

/* A loop over a range, as xop_host.parallel takes it. */
typedef void (*typed_loop)(void *arg, int64_t begin, int64_t end);

#define TYPED_JOIN2(a, b) a##b
#define TYPED_JOIN(a, b) TYPED_JOIN2(a, b)
#define TYPED(name) TYPED_JOIN(name, TYPED_SUFFIX)

#define TYPED_SUFFIX _f16
#define ELEMENT uint16_t
#define LOAD(e) ((double)convert_f16_to_f32(e))
#define STORE(d) (convert_f32_to_f16((float)(d)))
#include TYPED_BODY
#undef TYPED_SUFFIX
#undef LOAD
#undef STORE

#define TYPED_SUFFIX _bf16
#define LOAD(e) ((double)convert_bf16_to_f32(e))
#define STORE(d) (convert_f32_to_bf16((float)(d)))
#include TYPED_BODY
#undef TYPED_SUFFIX
#undef ELEMENT
#undef LOAD
#undef STORE

#define TYPED_SUFFIX _f32
#define ELEMENT float
#define LOAD(e) ((double)(e))
#define STORE(d) ((float)(d))
#include TYPED_BODY
#undef TYPED_SUFFIX
#undef ELEMENT
#undef STORE

#define TYPED_SUFFIX _f64
#define ELEMENT double
#define STORE(d) (d)
#include TYPED_BODY
#undef TYPED_SUFFIX
#undef ELEMENT
#undef LOAD
#undef STORE

#define TYPED_TABLE(name)                                                                          \
    {                                                                                              \
        [XOP_F16] = name##_f16, [XOP_BF16] = name##_bf16, [XOP_F32] = name##_f32,                  \
        [XOP_F64] = name##_f64                                                                     \
    }
