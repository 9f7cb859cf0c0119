/*
 * What passes between a worker and the parent, which keeps the descriptors of device memory so that
 * resident tensors outlive the worker that made them. Over a SOCK_SEQPACKET socket of their own:
 * the front never holds a descriptor of a device's memory, but for one that a client asked for.
 *
 * The worker asks, one packet of struct keeper_message at a time, and the parent answers each with
 * one: same type and number, and a status. What one worker gave, a later one of the same device can
 * ask for, under the same number.
 */
#ifndef SHARED_KEEPER_H
#define SHARED_KEEPER_H

#include <xop/types.h>

enum keeper_type {
    KEEPER_KEEP = 1, /* with a descriptor: keep it. RESOURCE_EXHAUSTED where that cannot be */
    KEEPER_RECALL,   /* OK with a copy of the descriptor and its bytes, or NOT_FOUND */
    KEEPER_DROP      /* forget it; OK also where it was not known */
};

struct keeper_message {
    uint32_t type;
    uint32_t status; /* answer: enum xop_status */
    uint64_t number, bytes;
};

#endif
