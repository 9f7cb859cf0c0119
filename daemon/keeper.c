#include "keeper.h"

#include "daemon/log.h"
#include "daemon/shared/channel.h"
#include "daemon/shared/keeper.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define RESERVED 256u /* descriptors for everything else that the parent does */

struct kept {
    uint64_t bytes;
    int fd;
};

void keeper_open(struct keeper *keeper) {
    struct rlimit limit;
    rlim_t most = 1024;
    *keeper = (struct keeper){.most = 0};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        most = limit.rlim_cur < INT32_MAX ? limit.rlim_cur : INT32_MAX;
    keeper->most = most > RESERVED ? (uint32_t)most - RESERVED : 0;
}

static void let_go(struct kept *kept) {
    if (kept)
        close(kept->fd);
    free(kept);
}

void keeper_close(struct keeper *keeper) {
    struct table_entry *entries = keeper->kept.entries;
    for (uint32_t i = 0; i < keeper->kept.capacity; i++)
        if (entries[i].key)
            let_go(entries[i].value);
    table_close(&keeper->kept);
}

/* Takes the descriptor over where it answers OK. */
static enum xop_status keep(struct keeper *keeper, const struct keeper_message *asked, int fd) {
    if (asked->number == 0 || table_find(&keeper->kept, asked->number))
        return XOP_ALREADY_EXISTS;
    struct kept *kept = keeper->kept.count < keeper->most ? malloc(sizeof *kept) : NULL;
    if (!kept)
        return XOP_RESOURCE_EXHAUSTED;
    *kept = (struct kept){asked->bytes, fd};
    if (table_add(&keeper->kept, asked->number, kept))
        return XOP_OK;
    free(kept);
    return XOP_RESOURCE_EXHAUSTED;
}

/* Answers; *fd is what came along, or -1, and becomes -1 where it is kept. */
static bool answer(struct keeper *keeper, int socket, struct keeper_message *message, int *fd) {
    const struct kept *kept = NULL;
    struct xop_error error;
    switch (message->type) {
    case KEEPER_KEEP:
        if (*fd < 0)
            return false;
        message->status = (uint32_t)keep(keeper, message, *fd);
        if (message->status == XOP_OK)
            *fd = -1;
        break;
    case KEEPER_RECALL:
        kept = message->number ? table_find(&keeper->kept, message->number) : NULL;
        message->status = kept ? XOP_OK : XOP_NOT_FOUND;
        message->bytes = kept ? kept->bytes : 0;
        break;
    case KEEPER_DROP:
        let_go(message->number ? table_remove(&keeper->kept, message->number) : NULL);
        message->status = XOP_OK;
        break;
    default: return false;
    }
    /* A worker waits for its answer before it asks again, so there is always room for one. */
    return channel_send(socket, message, sizeof *message, NULL, 0, kept ? &kept->fd : NULL,
                        kept ? 1 : 0, &error) == XOP_OK;
}

bool keeper_serve(struct keeper *keeper, int socket) {
    unsigned char packet[CHANNEL_BYTES];
    struct keeper_message message;
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block, kept = false;
    int fd = -1;
    if (channel_receive(socket, packet, &bytes, &fd, 1, &nfds, &would_block, &error) != XOP_OK)
        return would_block;
    if (bytes == sizeof message) {
        memcpy(&message, packet, sizeof message);
        kept = answer(keeper, socket, &message, &fd);
    }
    if (fd >= 0)
        close(fd);
    if (!kept && bytes > 0)
        log_error("a worker broke the rules of the keeper, which does not listen to it any more");
    return kept;
}
