/*
 * An allocator of ranges in a memory of fixed size that it never touches: it hands out offsets. Its
 * own records are in private memory, so whoever can write the shared bytes cannot harm it. Free
 * ranges are kept in lists by size (two levels: power of two, then eighths), so that allocating and
 * freeing take constant time; neighbours that are free are joined at once.
 *
 * Used for the inbox (by the front) and for the outbox (by a worker). Not thread-safe: its owner
 * locks where threads share one.
 */
#ifndef SHARED_ARENA_H
#define SHARED_ARENA_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define ARENA_GRANULE 256u /* bytes; sizes and offsets are multiples of it */

/* bytes is rounded down to the granule; NULL where memory runs out or bytes is under a granule. */
struct arena *arena_new(uint64_t bytes);
void arena_free(struct arena *arena);

/* A range of at least bytes (0 counts as 1); false where none is free. */
bool arena_take(struct arena *arena, uint64_t bytes, uint64_t *offset);

/* Gives back the range that starts at offset; false where no range taken starts there. */
bool arena_give(struct arena *arena, uint64_t offset);

/* Bytes of the range taken at offset, rounded up to the granule; 0 where none starts there. */
uint64_t arena_size_at(const struct arena *arena, uint64_t offset);

uint64_t arena_used(const struct arena *arena);
uint64_t arena_bytes(const struct arena *arena);

#endif
