#include "kernels/cuda/state.h"

void state_give_back_idle(struct xop_backend *backend, cudaStream_t stream) {
    void *memory[STATE_MAX_LANES];
    uint32_t n = 0;

    pthread_mutex_lock(&backend->lock);
    for (uint32_t i = 0; i < backend->nlanes; i++)
        if (!backend->lane[i].group && backend->lane[i].memory) {
            memory[n++] = backend->lane[i].memory;
            backend->lane[i].memory = NULL;
            backend->lane[i].memory_bytes = 0;
        }
    pthread_mutex_unlock(&backend->lock);
    for (uint32_t i = 0; i < n; i++)
        lane_free(backend->pool, memory[i], stream);
    if (backend->pool) {
        cudaStreamSynchronize(stream);
        cudaMemPoolTrimTo(backend->pool, 0);
    }
}
