#include "message_names.h"

_Static_assert(MESSAGE_NAME_SLOTS == 1u << 7, "a slot is the upper 7 bits of a product");

bool message_names_add(struct message_names *names, const char *name, uint8_t value) {
    const unsigned char *bytes = (const unsigned char *)name;
    size_t n = strlen(name);
    uint32_t taken = 0;
    /* Half of the slots stay empty: what is not there is then known after few. */
    for (uint32_t i = 0; i < MESSAGE_NAME_SLOTS; i++)
        taken += names->slots[i].bytes > 0;
    if (n == 0 || n > MESSAGE_NAME_BYTES || taken >= MESSAGE_NAME_SLOTS / 2)
        return false;
    struct message_name added = message_name_at(bytes, bytes + n, n);
    uint32_t i = message_name_slot(added);
    while (names->slots[i % MESSAGE_NAME_SLOTS].bytes > 0)
        i++;
    added.value = value;
    names->slots[i % MESSAGE_NAME_SLOTS] = added;
    return true;
}
