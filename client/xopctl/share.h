/*
 * Memory that run shares with the daemon, in place of sending large tensors through the socket: the
 * inputs of one request, copied into it, and those outputs whose shape follows from the inputs. The
 * memory is the share's until it is closed; results that lie in it are valid as long.
 */
#ifndef XOPCTL_SHARE_H
#define XOPCTL_SHARE_H

#include <jansson.h>
#include <xop/client.h>

struct share {
    struct xop_memory *memory; /* NULL: the request goes through the socket */
    struct xop_tensor in[XOP_MAX_INPUTS], out[XOP_MAX_OUTPUTS];
};

/* Has the request use such memory where that is worth it and the daemon takes it, and leaves it
 * alone where not. pass is the request's in the describe document. */
void share_open(struct share *share, struct xop_client *client, json_t *pass,
                struct xop_request *request);
void share_close(struct share *share);

#endif
