#include "table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_CAPACITY 16u

static uint64_t secret(void) {
    static _Atomic uint64_t known;
    uint64_t value = atomic_load_explicit(&known, memory_order_relaxed), none = 0;
    if (value)
        return value;
    if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value)
        value = (uint64_t)(uintptr_t)&known;
    value |= 1;
    return atomic_compare_exchange_strong(&known, &none, value) ? value : none;
}

static uint32_t home(const struct table *table, uint64_t key) {
    uint64_t h = (key ^ secret()) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32) * secret();
    return (uint32_t)(h >> 32) & (table->capacity - 1);
}

/* Where the key is, or where it would go. */
static uint32_t slot_of(const struct table *table, uint64_t key) {
    uint32_t at = home(table, key);
    while (table->entries[at].key && table->entries[at].key != key)
        at = (at + 1) & (table->capacity - 1);
    return at;
}

static bool grow(struct table *table) {
    struct table larger = {.capacity = table->capacity ? table->capacity * 2 : FIRST_CAPACITY};
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (!larger.entries)
        return false;
    for (uint32_t i = 0; i < table->capacity; i++)
        if (table->entries[i].key)
            larger.entries[slot_of(&larger, table->entries[i].key)] = table->entries[i];
    larger.count = table->count;
    free(table->entries);
    *table = larger;
    return true;
}

void table_close(struct table *table) {
    free(table->entries);
    *table = (struct table){0};
}

void *table_find(const struct table *table, uint64_t key) {
    if (table->count == 0 || key == 0)
        return NULL;
    const struct table_entry *entry = &table->entries[slot_of(table, key)];
    return entry->key ? entry->value : NULL;
}

bool table_add(struct table *table, uint64_t key, void *value) {
    if (table->count * 2 >= table->capacity && !grow(table))
        return false;
    table->entries[slot_of(table, key)] = (struct table_entry){key, value};
    table->count++;
    return true;
}

void *table_remove(struct table *table, uint64_t key) {
    if (table->count == 0 || key == 0)
        return NULL;
    uint32_t mask = table->capacity - 1, hole = slot_of(table, key);
    void *value = table->entries[hole].value;
    if (!table->entries[hole].key)
        return NULL;
    /* What was pushed on by the one that goes moves back, so that no search ends too early. */
    for (uint32_t at = (hole + 1) & mask; table->entries[at].key; at = (at + 1) & mask) {
        uint32_t from = home(table, table->entries[at].key);
        if (((at - from) & mask) < ((at - hole) & mask))
            continue;
        table->entries[hole] = table->entries[at];
        hole = at;
    }
    table->entries[hole] = (struct table_entry){0, NULL};
    table->count--;
    return value;
}

void *table_any(const struct table *table) {
    for (uint32_t i = 0; table->count > 0 && i < table->capacity; i++)
        if (table->entries[i].key)
            return table->entries[i].value;
    return NULL;
}
