/*
 * Memories besides inbox and outbox: what clients attach, and the device's for resident tensors.
 * The front decides what lies where in them; a worker only maps them, anew in every generation: a
 * memory is adopted the first time that a request names it.
 *
 * A client's is its memfd. The device's are made by a worker and kept by the parent (see
 * daemon/shared/keeper.h); small tensors share a slab, large ones have a memory each. A memory is
 * an object with counted references: requests that use it and tensors that lie in it hold one; with
 * the last it is released. All on the I/O thread that owns it.
 */
#ifndef FRONT_MEMORY_H
#define FRONT_MEMORY_H

#include "daemon/shared/arena.h"
#include "io.h"

enum memory_state {
    MEMORY_UNKNOWN, /* to the worker, as far as it has one */
    MEMORY_ASKED,   /* its adoption is under way */
    MEMORY_USABLE,
    MEMORY_BROKEN /* it could not be adopted: error */
};

struct memory {
    struct object object;
    struct memory *next, *previous; /* the thread's */
    struct memory *next_slab;
    struct io_thread *thread;
    struct connection *connection; /* whose quota a client's counts against; NULL once it ended */
    struct identity *payer;        /* who pays for its bytes, see identity_take */
    enum seam_memory_kind kind;
    enum memory_state state;
    uint32_t flags; /* enum seam_memory_flags */
    bool offered;   /* the device's: a worker was asked to make it, so the keeper may have it */
    bool made;      /* the device's: some worker made it, so that the keeper has it */
    uint64_t number, id; /* ours, the client's */
    uint64_t bytes;
    uint64_t whole;      /* of the device's: what there really is */
    int fd;              /* the client's memfd; -1 */
    int exported;        /* descriptor for a client; -1: none came */
    struct arena *arena; /* a slab's; NULL: one tensor has it all */
    struct request *waiters, **waiters_tail;
    struct xop_error error;
};

/* A client's, from its descriptor, which is taken in any case: what it is gets checked, and the
 * quotas. Its first reference is the caller's. NULL with error. */
struct memory *memory_attach(struct connection *connection, uint64_t id, int fd, uint64_t bytes,
                             bool write, struct xop_error *error);

/* Nobody can name a client's any more: the table's reference goes. */
void memory_detach(struct memory *memory);
void memory_detach_all(struct connection *connection);

/* Room for a tensor in device memory, held by a reference; alone: in a zeroed memory of its own,
 * whose descriptor is asked for. False with error. */
bool memory_take(struct io_thread *thread, uint64_t bytes, bool alone, struct memory **memory,
                 uint64_t *offset, struct xop_error *error);
void memory_give(struct memory *memory, uint64_t offset);

/* Whether the worker can use it now. If not, the request waits and is queued again when it can, or
 * it has failed: it is not to be touched then. */
bool memory_ready(struct memory *memory, struct request *request);
/* The request waits until there is news of the memory. */
void memory_wait(struct memory *memory, struct request *request);
/* The request, which waits for a memory, does so no longer. */
void memory_forget(struct request *request);

/* Fills a record that adopts or releases; false where it cannot be sent now. */
bool memory_fill(struct request *request, struct seam_request *record);
/* The worker has done with one that nobody waits for; frees it. */
void memory_completed(struct request *request, const struct seam_result *result);
/* The worker of a record about a memory is gone; frees the request, or queues it anew. */
void memory_orphaned(struct request *request);
/* A client's memory is not the worker's any more. */
void memory_released(struct memory *memory);

/* The worker is gone, and with it all that it had adopted. */
void memory_gone(struct io_thread *thread);
/* There will be no worker for a while: whoever waits fails. */
void memory_refuse_all(struct io_thread *thread, const char *reason);
/* A descriptor for a client came. It is taken. */
void memory_exported(struct io_thread *thread, uint64_t number, int fd);

static inline uint32_t memory_thread(uint64_t number) { return (uint32_t)(number >> 48); }

/* Frees what is left when the daemon ends. */
void memory_close(struct io_thread *thread);

#endif
