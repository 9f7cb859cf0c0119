#include "kernels/cpu/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* openblas_get_parallel() */
#define PARALLEL_OPENMP 2

static const struct blas *_Atomic best;

static void *function(void *library, const char *name, bool *all) {
    void *found = dlsym(library, name);
    *all &= found != NULL;
    return found;
}

/* Signals belong to the worker's loop, not to threads that the library may start. */
static void *open_quietly(const char *name) {
    sigset_t all, before;
    void *library;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return library;
}

/* ISO C has no conversion from an object's pointer to a function's; POSIX has, by this way. */
#define FUNCTION(to, library, name, all)                                                           \
    do {                                                                                           \
        void *found_ = function(library, name, all);                                               \
        memcpy(&(to), &found_, sizeof(to));                                                        \
    } while (0)

/* "OpenBLAS 0.3.21 DYNAMIC_ARCH ..." becomes "OpenBLAS 0.3.21", and the kernels' name follows. */
static void name_it(struct blas *blas, const char *config, const char *core) {
    const char *end = strchr(config, ' ');
    if (end && strchr(end + 1, ' '))
        end = strchr(end + 1, ' ');
    snprintf(blas->name, sizeof blas->name, "%.*s (%s)",
             end ? (int)(end - config) : (int)strlen(config), config, core);
}

/* The library stays open for the life of the process. */
static const struct blas *load(void) {
    static struct blas blas;
    void (*set_threads)(int n);
    int (*parallel)(void);
    char *(*config)(void);
    char *(*core)(void);
    void *library;
    bool all = true;

    if (blas.sgemm)
        return &blas;
    /* Else it starts a thread for every core as soon as it is opened. */
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    library = open_quietly("libopenblas.so.0");
    if (!library)
        return NULL;
    FUNCTION(set_threads, library, "openblas_set_num_threads", &all);
    FUNCTION(parallel, library, "openblas_get_parallel", &all);
    FUNCTION(config, library, "openblas_get_config", &all);
    FUNCTION(core, library, "openblas_get_corename", &all);
    FUNCTION(blas.sgemm, library, "cblas_sgemm", &all);
    FUNCTION(blas.dgemm, library, "cblas_dgemm", &all);
    /* The build for OpenMP asks it, in every thread anew, how many threads to start. */
    if (!all || parallel() == PARALLEL_OPENMP) {
        blas.sgemm = NULL;
        dlclose(library);
        return NULL;
    }
    set_threads(1);
    name_it(&blas, config(), core());
    return &blas;
}

void blas_open(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *wish = getenv("XOP_CPU_BLAS");
    pthread_mutex_lock(&lock);
    atomic_store_explicit(&best, wish && strcmp(wish, "none") == 0 ? NULL : load(),
                          memory_order_release);
    pthread_mutex_unlock(&lock);
}

const struct blas *blas_best(void) { return atomic_load_explicit(&best, memory_order_acquire); }
