/*
 * A map from 64-bit numbers other than 0 to pointers, for what clients name by numbers of their own
 * choice. Empty, it takes no memory. Numbers are mixed with a secret, so that a client cannot
 * choose them to collide. Belongs to one thread.
 */
#ifndef SHARED_TABLE_H
#define SHARED_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct table_entry {
    uint64_t key; /* 0: none */
    void *value;
};

struct table {
    struct table_entry *entries;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t count;
};

void table_close(struct table *table);

void *table_find(const struct table *table, uint64_t key); /* NULL: it is not there */

/* The key must not be there. False where memory runs out. */
bool table_add(struct table *table, uint64_t key, void *value);

/* Takes it out and returns it; NULL where it is not there. */
void *table_remove(struct table *table, uint64_t key);

/* Some value that is left, or NULL: for emptying. */
void *table_any(const struct table *table);

#endif
