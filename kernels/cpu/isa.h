/*
 * Includes the file that ISA_BODY names once for each vector extension that a processor of this
 * architecture may have, inside a region that lets the compiler use it. There, ISA(name) gives a
 * name of its own, ISA_TEXT is the extension's name, ISA_BYTES the size of its vectors, and
 * ISA_F16C is defined where the F16C instructions may be used. No include guard.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define ISA_JOIN2(a, b) a##b
#define ISA_JOIN(a, b) ISA_JOIN2(a, b)
#define ISA(name) ISA_JOIN(name, ISA_SUFFIX)

#define ISA_BYTES 16
#if defined(__x86_64__)
#define ISA_SUFFIX _sse2
#define ISA_TEXT "SSE2"
#elif defined(__aarch64__)
#define ISA_SUFFIX _neon
#define ISA_TEXT "NEON"
#else
#define ISA_SUFFIX _plain
#define ISA_TEXT "no vector extensions"
#endif
#include ISA_BODY
#undef ISA_SUFFIX
#undef ISA_TEXT
#undef ISA_BYTES

#if defined(__x86_64__)
#define ISA_F16C

#define ISA_BYTES 32
#define ISA_SUFFIX _avx2
#define ISA_TEXT "AVX2, FMA, F16C"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include ISA_BODY
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA_SUFFIX
#undef ISA_TEXT
#undef ISA_BYTES

#define ISA_BYTES 64
#define ISA_SUFFIX _avx512
#define ISA_TEXT "AVX-512 (F, BW, DQ, VL), F16C"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,"      \
                                                   "avx512vl"))),                                  \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#include ISA_BODY
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA_SUFFIX
#undef ISA_TEXT
#undef ISA_BYTES
#undef ISA_F16C
#endif
