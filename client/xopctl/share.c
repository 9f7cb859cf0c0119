#include "share.h"

#include "lookup.h"
#include "session.h"

#include <string.h>

#define ALIGNMENT 64 /* of tensors in shared memory */

/* The input whose dtype and shape an output has, by what the operator declares; -1 where that is
 * not known. An output that may lie in its input's place is as large, a gradient as what it is of.
 */
static int like_input(json_t *pass, size_t i) {
    json_t *output = json_array_get(json_object_get(pass, "outputs"), i);
    const char *name = lookup_text(output, "name");
    if (json_is_true(json_object_get(output, "in_place")))
        return (int)i;
    if (strncmp(name, "grad_", 5) != 0)
        return -1;
    return lookup_index(json_object_get(pass, "inputs"), name + 5);
}

/* Where a tensor begins behind those before it; false where there cannot be so much memory. */
static bool reserve(const struct xop_tensor *tensor, uint64_t *where, uint64_t *all) {
    uint64_t bytes;
    *where = *all;
    if (!xop_tensor_bytes(tensor, &bytes) || bytes > UINT64_MAX - ALIGNMENT)
        return false;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return !__builtin_add_overflow(*all, bytes, all);
}

void share_open(struct share *share, struct xop_client *client, json_t *pass,
                struct xop_request *request) {
    size_t nout = json_array_size(json_object_get(pass, "outputs"));
    uint64_t in_at[XOP_MAX_INPUTS] = {0}, out_at[XOP_MAX_OUTPUTS] = {0}, all = 0, bytes;
    bool placed[XOP_MAX_OUTPUTS] = {false};
    struct xop_error error;
    memset(share, 0, sizeof *share);
    if (nout > XOP_MAX_OUTPUTS || request->nin > XOP_MAX_INPUTS)
        return;
    for (uint32_t i = 0; i < request->nin; i++) {
        share->in[i] = request->in[i];
        if (share->in[i].data && !reserve(&share->in[i], &in_at[i], &all))
            return;
    }
    /* Outputs between guard bytes are for the daemon to allocate. */
    for (size_t i = 0; i < nout && !request->check; i++) {
        int like = like_input(pass, i);
        if (like < 0 || (uint32_t)like >= request->nin || share->in[like].dtype == XOP_DTYPE_NONE)
            continue;
        share->out[i] = share->in[like];
        placed[i] = true;
        if (!reserve(&share->out[i], &out_at[i], &all))
            return;
    }
    if (all < SHARE_FROM_BYTES || all > SIZE_MAX ||
        xop_memory_create((size_t)all, &share->memory, &error) != XOP_OK)
        return;
    if (xop_memory_attach(client, share->memory, true, &error) != XOP_OK) {
        share_close(share);
        return;
    }
    unsigned char *memory = xop_memory_data(share->memory);
    for (uint32_t i = 0; i < request->nin; i++) {
        const void *from = request->in[i].data;
        if (from && xop_tensor_bytes(&request->in[i], &bytes))
            share->in[i].data = memcpy(memory + in_at[i], from, bytes);
    }
    for (size_t i = 0; i < nout; i++)
        if (placed[i])
            share->out[i].data = memory + out_at[i];
    request->in = share->in;
    request->out = share->out;
    request->nout = (uint32_t)nout;
}

void share_close(struct share *share) {
    xop_memory_free(share->memory);
    share->memory = NULL;
}
