#include "kernels/cuda/lt.h"

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/check.h"

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
#define LIBRARY "libcublasLt.so"
#define VERSIONED LIBRARY "." TEXT(CUBLAS_VER_MAJOR)

/* Every function of the library that is used. */
#define FUNCTIONS(X)                                                                               \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtGetStatusName)                                                                       \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtCreate)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)                                                            \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmul)

#define MEMBER(name) __typeof__(name) *name;

enum state { CLOSED, OPENING, OPEN, FAILED };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t settled;
    enum state state;
    struct gpu gpu;
    struct xop_error error; /* FAILED: why */
    cublasLtHandle_t handle;
    FUNCTIONS(MEMBER)
} lt = {.lock = PTHREAD_MUTEX_INITIALIZER, .settled = PTHREAD_COND_INITIALIZER};

/* ---- Errors ---- */

/* XOP_OK, or a failure whose sentence names the error, the call and its place. */
#define CHECK_LT(error, call) check_lt((call), #call, __FILE__, __LINE__, (error))

static enum xop_status status_of(cublasStatus_t code) {
    switch (code) {
    case CUBLAS_STATUS_SUCCESS: return XOP_OK;
    case CUBLAS_STATUS_ALLOC_FAILED: return XOP_RESOURCE_EXHAUSTED;
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED: return XOP_UNIMPLEMENTED;
    default: return XOP_INTERNAL;
    }
}

static enum xop_status check_lt(cublasStatus_t code, const char *call, const char *file, int line,
                                struct xop_error *error) {
    if (code == CUBLAS_STATUS_SUCCESS)
        return XOP_OK;
    return xop_fail(error, status_of(code), "%s (%s) from %.200s at %s:%d",
                    lt.cublasLtGetStatusName(code), lt.cublasLtGetStatusString(code), call, file,
                    line);
}

/* ---- Opening ---- */

static enum xop_status missing(const char *why, struct xop_error *error) {
    return xop_fail(error, XOP_UNIMPLEMENTED,
                    "products of matrices need NVIDIA's cuBLASLt %d, which cannot be opened: "
                    "%.160s; install it (package libcublas-%d-%d of NVIDIA's repository, or pip's "
                    "nvidia-cublas with its directory in ldconfig's path) and start xopd again",
                    CUBLAS_VER_MAJOR, why, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/* XOP_CUBLASLT names another file, for testing and measuring. */
static void *open_library(char *why, size_t size) {
    static const char *const places[] = {
        VERSIONED, "/usr/local/cuda-" TEXT(CUBLAS_VER_MAJOR) "/lib64/" VERSIONED,
        "/usr/local/cuda/lib64/" VERSIONED, LIBRARY};
    const char *named = getenv("XOP_CUBLASLT");
    void *library = dlopen(named ? named : VERSIONED, RTLD_NOW | RTLD_LOCAL);
    const char *reason = library ? NULL : dlerror();

    snprintf(why, size, "%s", reason ? reason : "");
    for (size_t i = 1; !library && !named && i < sizeof places / sizeof *places; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* ISO C has no conversion from an object's pointer to a function's; POSIX has, by this way. */
#define LOAD(name)                                                                                 \
    if (status == XOP_OK) {                                                                        \
        void *found = dlsym(library, #name);                                                       \
        memcpy(&lt.name, &found, sizeof found);                                                    \
        if (!found)                                                                                \
            status = missing("it has no " #name, error);                                           \
    }

static enum xop_status load(struct xop_error *error) {
    char why[256];
    void *library = open_library(why, sizeof why);
    enum xop_status status = XOP_OK;
    size_t version;

    if (!library)
        return missing(why, error);
    FUNCTIONS(LOAD)
    if (status != XOP_OK)
        return status;
    /* 130100 is 13.1.0; 11.x counted in thousands. */
    version = lt.cublasLtGetVersion();
    if (version / 10000 != CUBLAS_VER_MAJOR) {
        snprintf(why, sizeof why, "the one found has version %zu", version);
        return missing(why, error);
    }
    status = gpu_enter(&lt.gpu, error);
    if (status == XOP_OK)
        status = CHECK_LT(error, lt.cublasLtCreate(&lt.handle));
    return status;
}

static void settle(void) {
    struct xop_error error = {XOP_OK, ""};
    enum xop_status status = load(&error);
    pthread_mutex_lock(&lt.lock);
    lt.error = error;
    lt.state = status == XOP_OK ? OPEN : FAILED;
    pthread_cond_broadcast(&lt.settled);
    pthread_mutex_unlock(&lt.lock);
}

static void *opener(void *arg) {
    settle();
    return arg;
}

/* A thread without signals, which nobody waits for by joining it. */
static bool start_opener(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    bool started;

    if (pthread_attr_init(&attributes) != 0)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
              pthread_create(&thread, &attributes, opener, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

void lt_begin(const struct gpu *gpu) {
    bool first;
    pthread_mutex_lock(&lt.lock);
    first = lt.state == CLOSED;
    if (first) {
        lt.state = OPENING;
        lt.gpu = *gpu;
    }
    pthread_mutex_unlock(&lt.lock);
    if (first && !start_opener())
        settle();
}

/* Waits until the library is open, which it is but for the first moments. */
static enum xop_status ready(struct xop_error *error) {
    enum xop_status status = XOP_OK;
    pthread_mutex_lock(&lt.lock);
    while (lt.state == OPENING)
        pthread_cond_wait(&lt.settled, &lt.lock);
    if (lt.state == FAILED) {
        *error = lt.error;
        status = lt.error.status;
    } else if (lt.state == CLOSED) {
        status = xop_fail(error, XOP_INTERNAL, "cuBLASLt is used before lt_begin");
    }
    pthread_mutex_unlock(&lt.lock);
    return status;
}

/* ---- How a product is computed ---- */

/* What the library's choice depends on. Compared as bytes, so it is zeroed before it is filled. */
struct key {
    int64_t rows, columns, inner;
    int64_t batch, step_a, step_b, step_c;
    uint64_t workspace_bytes;
    int32_t dtype, c_dtype;
    uint16_t alignment[4]; /* of a, b, c and the bias */
    uint8_t a_transposed, b_transposed, adds, bias, allow_tf32, any_order;
};

/* A choice that was made. The library's matrices are column-major, so that what it multiplies is
 * c^T = b^T a^T: its first matrix is b and its second a. */
struct choice {
    struct key key;
    enum xop_status status; /* UNIMPLEMENTED: the library has none */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool used;
};

#define CHOICES 256u /* a product's place is its key's hash; another of that hash replaces it */

static struct choice choices[CHOICES];

/* Of matrices that begin there, and at every so many bytes. */
static uint16_t alignment_of(const void *address, int64_t step, enum xop_dtype dtype) {
    uintptr_t at = (uintptr_t)address | (uintptr_t)step * xop_dtype_size(dtype) | 256;
    return (uint16_t)(at & -at);
}

static struct key key_of(const struct lt_product *p) {
    struct key key;
    memset(&key, 0, sizeof key);
    key.rows = p->rows;
    key.columns = p->columns;
    key.inner = p->inner;
    key.batch = p->batch;
    if (p->batch > 1) { /* else they say nothing */
        key.step_a = p->step_a;
        key.step_b = p->step_b;
        key.step_c = p->step_c;
    }
    key.workspace_bytes = p->workspace_bytes;
    key.dtype = (int32_t)p->dtype;
    key.c_dtype = (int32_t)p->c_dtype;
    key.alignment[0] = alignment_of(p->a, key.step_a, p->dtype);
    key.alignment[1] = alignment_of(p->b, key.step_b, p->dtype);
    key.alignment[2] = alignment_of(p->c, key.step_c, p->c_dtype);
    key.alignment[3] = alignment_of(p->bias, 0, p->dtype);
    key.a_transposed = p->a_transposed;
    key.b_transposed = p->b_transposed;
    key.adds = p->adds;
    key.bias = p->bias != NULL;
    key.allow_tf32 = p->allow_tf32 && p->dtype == XOP_F32;
    key.any_order = p->any_order;
    return key;
}

/* FNV-1a, by Fowler, Noll and Vo. */
static uint32_t hash_of(const struct key *key) {
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash ^ hash >> 16;
}

static void forget(struct choice *choice) {
    if (choice->product)
        lt.cublasLtMatmulDescDestroy(choice->product);
    if (choice->a)
        lt.cublasLtMatrixLayoutDestroy(choice->a);
    if (choice->b)
        lt.cublasLtMatrixLayoutDestroy(choice->b);
    if (choice->c)
        lt.cublasLtMatrixLayoutDestroy(choice->c);
    memset(choice, 0, sizeof *choice);
}

static cudaDataType_t type_of(enum xop_dtype dtype) {
    switch (dtype) {
    case XOP_F16: return CUDA_R_16F;
    case XOP_BF16: return CUDA_R_16BF;
    case XOP_F64: return CUDA_R_64F;
    default: return CUDA_R_32F;
    }
}

#define SET_PRODUCT(error, product, attribute, value)                                              \
    CHECK_LT(error, lt.cublasLtMatmulDescSetAttribute(product, attribute, &(value), sizeof(value)))
#define SET_LAYOUT(error, layout, attribute, value)                                                \
    CHECK_LT(error, lt.cublasLtMatrixLayoutSetAttribute(layout, attribute, &(value), sizeof(value)))
#define SET_PREFERENCE(error, preference, attribute, value)                                        \
    CHECK_LT(error, lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &(value),       \
                                                            sizeof(value)))

/* A matrix as the library sees it, and how it repeats. */
static enum xop_status lay_out(const struct lt_product *p, enum xop_dtype dtype, uint64_t rows,
                               uint64_t columns, int64_t step, cublasLtMatrixLayout_t *layout,
                               struct xop_error *error) {
    int32_t batch = (int32_t)p->batch;
    enum xop_status status = CHECK_LT(
        error, lt.cublasLtMatrixLayoutCreate(layout, type_of(dtype), rows, columns, (int64_t)rows));
    if (status == XOP_OK && p->batch > 1)
        status = SET_LAYOUT(error, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
    if (status == XOP_OK && p->batch > 1)
        status = SET_LAYOUT(error, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
    return status;
}

static cublasComputeType_t computed_in(const struct lt_product *p) {
    if (p->dtype == XOP_F64)
        return CUBLAS_COMPUTE_64F;
    return p->dtype == XOP_F32 && p->allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* Every call that matters to later requests is checked here, before the heuristics are asked. */
static enum xop_status describe(const struct lt_product *p, struct choice *choice,
                                struct xop_error *error) {
    cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    uint64_t rows = (uint64_t)p->rows, columns = (uint64_t)p->columns, inner = (uint64_t)p->inner;
    uint64_t b_width = p->b_transposed ? inner : columns, a_width = p->a_transposed ? rows : inner;
    enum xop_status status =
        CHECK_LT(error, lt.cublasLtMatmulDescCreate(&choice->product, computed_in(p),
                                                    p->dtype == XOP_F64 ? CUDA_R_64F : CUDA_R_32F));

    if (status == XOP_OK)
        status = SET_PRODUCT(error, choice->product, CUBLASLT_MATMUL_DESC_TRANSA, first);
    if (status == XOP_OK)
        status = SET_PRODUCT(error, choice->product, CUBLASLT_MATMUL_DESC_TRANSB, second);
    if (status == XOP_OK)
        status = SET_PRODUCT(error, choice->product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (status == XOP_OK && p->bias)
        status = SET_PRODUCT(error, choice->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias);
    if (status == XOP_OK)
        status = lay_out(p, p->dtype, b_width, p->b_transposed ? columns : inner, p->step_b,
                         &choice->b, error);
    if (status == XOP_OK)
        status = lay_out(p, p->dtype, a_width, p->a_transposed ? inner : rows, p->step_a,
                         &choice->a, error);
    if (status == XOP_OK)
        status = lay_out(p, p->c_dtype, columns, rows, p->step_c, &choice->c, error);
    return status;
}

/* Sums that are cut into pieces are put together in the type computed in, not in the result's, and
 * in an order of their own, not in that in which the pieces are done, unless any order does. */
static enum xop_status prefer(const struct key *key, cublasLtMatmulPreference_t preference,
                              struct xop_error *error) {
    static const cublasLtMatmulPreferenceAttributes_t attributes[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    /* What is written and the bias are accessed alike. */
    const uint32_t c = key->alignment[2], bias = key->alignment[3];
    const uint32_t alignments[] = {key->alignment[1], key->alignment[0], c, bias < c ? bias : c};
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    enum xop_status status = SET_PREFERENCE(
        error, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key->workspace_bytes);

    if (status == XOP_OK && !key->any_order)
        status =
            SET_PREFERENCE(error, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    for (size_t i = 0; status == XOP_OK && i < sizeof alignments / sizeof *alignments; i++)
        status = SET_PREFERENCE(error, preference, attributes[i], alignments[i]);
    return status;
}

static enum xop_status choose(const struct lt_product *p, struct choice *choice,
                              struct xop_error *error) {
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    enum xop_status status = describe(p, choice, error);
    int found = 0;

    memset(&result, 0, sizeof result);
    if (status == XOP_OK)
        status = CHECK_LT(error, lt.cublasLtMatmulPreferenceCreate(&preference));
    if (status == XOP_OK)
        status = prefer(&choice->key, preference, error);
    if (status == XOP_OK)
        status = CHECK_LT(error, lt.cublasLtMatmulAlgoGetHeuristic(
                                     lt.handle, choice->product, choice->b, choice->a, choice->c,
                                     choice->c, preference, 1, &result, &found));
    if (status == XOP_OK && found == 0)
        status = xop_fail(error, XOP_UNIMPLEMENTED,
                          "cuBLASLt knows no way to multiply (%lld, %lld) by (%lld, %lld) in %s "
                          "on this device",
                          (long long)p->rows, (long long)p->inner, (long long)p->inner,
                          (long long)p->columns, xop_dtype_name(p->dtype));
    else if (status == XOP_OK)
        status = CHECK_LT(error, result.state);
    if (status == XOP_OK)
        choice->algorithm = result.algo;
    if (preference)
        lt.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* The choice for a product, made now if it is not at hand. Only a lack of memory or a bug makes it
 * fail where it did not before, so those are not kept. */
static enum xop_status find(const struct lt_product *p, struct choice **found,
                            struct xop_error *error) {
    struct key key = key_of(p);
    struct choice *choice = &choices[hash_of(&key) % CHOICES];

    *found = choice;
    if (choice->used && memcmp(&choice->key, &key, sizeof key) == 0) {
        if (choice->status != XOP_OK)
            return xop_fail(error, choice->status,
                            "cuBLASLt cannot multiply (%lld, %lld) by (%lld, %lld) in %s",
                            (long long)p->rows, (long long)p->inner, (long long)p->inner,
                            (long long)p->columns, xop_dtype_name(p->dtype));
        return XOP_OK;
    }
    forget(choice);
    choice->key = key;
    choice->status = choose(p, choice, error);
    choice->used = choice->status == XOP_OK || choice->status == XOP_UNIMPLEMENTED;
    return choice->status;
}

enum xop_status lt_product_enqueue(const struct lt_product *p, cudaStream_t stream,
                                   bool *unsupported, struct xop_error *error) {
    const float one = 1, zero = 0;
    const double one_f64 = 1, zero_f64 = 0;
    bool doubles = p->dtype == XOP_F64;
    const void *alpha = doubles ? (const void *)&one_f64 : (const void *)&one;
    const void *beta = doubles ? (const void *)&zero_f64 : (const void *)&zero;
    struct choice *choice;
    enum xop_status status = ready(error);

    *unsupported = false;
    if (status != XOP_OK)
        return status;
    status = find(p, &choice, error);
    *unsupported = status == XOP_UNIMPLEMENTED;
    if (status == XOP_OK && p->bias)
        status = SET_PRODUCT(error, choice->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias);
    if (status != XOP_OK)
        return status;
    return CHECK_LT(error, lt.cublasLtMatmul(lt.handle, choice->product, alpha, p->b, choice->b,
                                             p->a, choice->a, p->adds ? alpha : beta, p->c,
                                             choice->c, p->c, choice->c, &choice->algorithm,
                                             p->workspace, p->workspace_bytes, stream));
}

#else

void lt_begin(const struct gpu *gpu) { (void)gpu; }

enum xop_status lt_product_enqueue(const struct lt_product *product, cudaStream_t stream,
                                   bool *unsupported, struct xop_error *error) {
    (void)product;
    (void)stream;
    *unsupported = false;
    return xop_fail(error, XOP_UNIMPLEMENTED,
                    "products of matrices need NVIDIA's cuBLASLt, and xop-cuda.so was built where "
                    "cublasLt.h was not; install its development package (libcublas-dev) and build "
                    "xopd again");
}

#endif
