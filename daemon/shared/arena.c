#include "arena.h"

#include <stdlib.h>
#include <string.h>

/* Sizes are counted in granules. Bin (f, s) of the free lists holds ranges of 2^f + s * 2^(f-3)
 * granules up to the next bin's start, as in Masmano's two-level segregated fit. */
#define LEVELS 40
#define SPLITS 8
#define NONE UINT32_MAX

struct range {
    uint64_t start, size;    /* granules */
    uint32_t before, after;  /* neighbours by address */
    uint32_t previous, next; /* in a free list, or in the list of unused range records */
    bool taken;
};

struct arena {
    uint64_t granules, used;
    struct range *ranges; /* records, reused through `spare` */
    uint32_t capacity, count, spare;
    uint32_t *at; /* granule -> its range's record + 1 where a range starts there, else 0 */
    uint64_t levels;
    uint8_t splits[LEVELS];
    uint32_t bins[LEVELS][SPLITS];
};

static unsigned log2_floor(uint64_t n) { return 63u - (unsigned)__builtin_clzll(n); }

static void bin_of(uint64_t size, unsigned *level, unsigned *split) {
    if (size < SPLITS) {
        *level = 0;
        *split = (unsigned)size;
    } else {
        unsigned log = log2_floor(size);
        *level = log - 2;
        *split = (unsigned)(size >> (log - 3)) & (SPLITS - 1);
    }
}

static void unlink_free(struct arena *arena, uint32_t index) {
    struct range *range = &arena->ranges[index];
    unsigned level, split;
    bin_of(range->size, &level, &split);
    if (range->previous != NONE)
        arena->ranges[range->previous].next = range->next;
    else
        arena->bins[level][split] = range->next;
    if (range->next != NONE)
        arena->ranges[range->next].previous = range->previous;
    if (arena->bins[level][split] == NONE) {
        arena->splits[level] &= (uint8_t) ~(1u << split);
        if (arena->splits[level] == 0)
            arena->levels &= ~(UINT64_C(1) << level);
    }
}

static void link_free(struct arena *arena, uint32_t index) {
    struct range *range = &arena->ranges[index];
    unsigned level, split;
    bin_of(range->size, &level, &split);
    range->taken = false;
    range->previous = NONE;
    range->next = arena->bins[level][split];
    if (range->next != NONE)
        arena->ranges[range->next].previous = index;
    arena->bins[level][split] = index;
    arena->splits[level] |= (uint8_t)(1u << split);
    arena->levels |= UINT64_C(1) << level;
}

static uint32_t new_record(struct arena *arena) {
    if (arena->spare != NONE) {
        uint32_t index = arena->spare;
        arena->spare = arena->ranges[index].next;
        return index;
    }
    if (arena->count == arena->capacity) {
        uint32_t capacity = arena->capacity * 2;
        struct range *ranges = realloc(arena->ranges, capacity * sizeof *ranges);
        if (!ranges)
            return NONE;
        arena->ranges = ranges;
        arena->capacity = capacity;
    }
    return arena->count++;
}

static void drop_record(struct arena *arena, uint32_t index) {
    arena->at[arena->ranges[index].start] = 0;
    arena->ranges[index].next = arena->spare;
    arena->spare = index;
}

struct arena *arena_new(uint64_t bytes) {
    uint64_t granules = bytes / ARENA_GRANULE;
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena || granules == 0 || granules >= NONE)
        goto fail;
    arena->granules = granules;
    arena->capacity = 256;
    arena->ranges = calloc(arena->capacity, sizeof *arena->ranges);
    arena->at = calloc(granules, sizeof *arena->at);
    if (!arena->ranges || !arena->at)
        goto fail;
    memset(arena->bins, 0xff, sizeof arena->bins);
    arena->spare = NONE;
    arena->count = 1;
    arena->ranges[0] = (struct range){.size = granules, .before = NONE, .after = NONE};
    arena->at[0] = 1;
    link_free(arena, 0);
    return arena;
fail:
    arena_free(arena);
    return NULL;
}

void arena_free(struct arena *arena) {
    if (!arena)
        return;
    free(arena->ranges);
    free(arena->at);
    free(arena);
}

/* The first free range of a bin whose every range is large enough, or NONE. */
static uint32_t find(const struct arena *arena, uint64_t size) {
    unsigned level, split;
    /* Rounded up to the next bin's start, so that the first range found fits. */
    if (size >= SPLITS)
        size += (UINT64_C(1) << (log2_floor(size) - 3)) - 1;
    bin_of(size, &level, &split);
    if (level >= LEVELS)
        return NONE;
    unsigned splits = arena->splits[level] & (0xffu << split);
    if (splits == 0) {
        uint64_t levels = level + 1 < LEVELS ? arena->levels & (~UINT64_C(0) << (level + 1)) : 0;
        if (levels == 0)
            return NONE;
        level = (unsigned)__builtin_ctzll(levels);
        splits = arena->splits[level];
    }
    return arena->bins[level][__builtin_ctz(splits)];
}

/* A range in the bin of size itself that happens to fit: the last resort for a nearly full arena.
 */
static uint32_t find_tight(const struct arena *arena, uint64_t size) {
    unsigned level, split;
    bin_of(size, &level, &split);
    if (level >= LEVELS)
        return NONE;
    uint32_t index = arena->bins[level][split];
    while (index != NONE && arena->ranges[index].size < size)
        index = arena->ranges[index].next;
    return index;
}

bool arena_take(struct arena *arena, uint64_t bytes, uint64_t *offset) {
    uint64_t size = bytes / ARENA_GRANULE + (bytes % ARENA_GRANULE != 0);
    if (size == 0)
        size = 1;
    if (size > arena->granules)
        return false;
    uint32_t index = find(arena, size);
    if (index == NONE)
        index = find_tight(arena, size);
    if (index == NONE)
        return false;
    uint32_t rest = NONE;
    if (arena->ranges[index].size > size) {
        rest = new_record(arena);
        if (rest == NONE)
            return false;
    }
    unlink_free(arena, index);
    struct range *range = &arena->ranges[index];
    if (rest != NONE) {
        arena->ranges[rest] = (struct range){.start = range->start + size,
                                             .size = range->size - size,
                                             .before = index,
                                             .after = range->after};
        if (range->after != NONE)
            arena->ranges[range->after].before = rest;
        range->after = rest;
        range->size = size;
        arena->at[arena->ranges[rest].start] = rest + 1;
        link_free(arena, rest);
    }
    range->taken = true;
    arena->used += size;
    *offset = range->start * ARENA_GRANULE;
    return true;
}

/* Joins the range `right` to its free or just freed left neighbour. */
static void join(struct arena *arena, uint32_t left, uint32_t right) {
    struct range *l = &arena->ranges[left], *r = &arena->ranges[right];
    l->size += r->size;
    l->after = r->after;
    if (r->after != NONE)
        arena->ranges[r->after].before = left;
    drop_record(arena, right);
}

static uint32_t taken_at(const struct arena *arena, uint64_t offset) {
    uint64_t granule = offset / ARENA_GRANULE;
    if (offset % ARENA_GRANULE != 0 || granule >= arena->granules || arena->at[granule] == 0)
        return NONE;
    uint32_t index = arena->at[granule] - 1;
    return arena->ranges[index].taken ? index : NONE;
}

bool arena_give(struct arena *arena, uint64_t offset) {
    uint32_t index = taken_at(arena, offset);
    if (index == NONE)
        return false;
    arena->used -= arena->ranges[index].size;
    uint32_t after = arena->ranges[index].after, before = arena->ranges[index].before;
    if (after != NONE && !arena->ranges[after].taken) {
        unlink_free(arena, after);
        join(arena, index, after);
    }
    if (before != NONE && !arena->ranges[before].taken) {
        unlink_free(arena, before);
        join(arena, before, index);
        index = before;
    }
    link_free(arena, index);
    return true;
}

uint64_t arena_size_at(const struct arena *arena, uint64_t offset) {
    uint32_t index = taken_at(arena, offset);
    return index == NONE ? 0 : arena->ranges[index].size * ARENA_GRANULE;
}

uint64_t arena_used(const struct arena *arena) { return arena->used * ARENA_GRANULE; }

uint64_t arena_bytes(const struct arena *arena) { return arena->granules * ARENA_GRANULE; }
