/*
 * The parent's side of daemon/shared/keeper.h: descriptors of device memory, by the numbers that
 * the front gave them, held while workers come and go. It never waits for a worker, and never reads
 * the memory.
 */
#ifndef DAEMON_KEEPER_H
#define DAEMON_KEEPER_H

#include "daemon/shared/table.h"

struct keeper {
    struct table kept;
    uint32_t most; /* descriptors it may hold */
};

/* Leaves some of the process's descriptors to others. */
void keeper_open(struct keeper *keeper);
void keeper_close(struct keeper *keeper);

/* Answers one message of a worker. False where the worker is gone, or says what is no message: its
 * socket, which must not block, is to be closed then. */
bool keeper_serve(struct keeper *keeper, int socket);

#endif
