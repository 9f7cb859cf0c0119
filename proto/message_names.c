#include "message_names.h"

_Static_assert(MESSAGE_NAME_SLOTS == 1u << 7, "a slot is the upper 7 bits of a product");

bool message_names_add(struct message_names *names, const char *name, unsigned value) {
    unsigned char bytes[1 + MESSAGE_NAME_BYTES + 8] = {0};
    size_t n = strlen(name);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < MESSAGE_NAME_SLOTS; i++)
        taken += names->slots[i].first > 0;
    if (n == 0 || n > MESSAGE_NAME_BYTES || taken >= MESSAGE_NAME_SLOTS / 2)
        return false;
    bytes[0] = (unsigned char)(0xa0 | n);
    memcpy(bytes + 1, name, n);
    struct message_name added = {message_word(bytes), 0, value};
    if (n > 7)
        added.last = message_word(bytes + 1 + n - 8);
    uint32_t i = message_name_slot(added.first);
    while (names->slots[i % MESSAGE_NAME_SLOTS].first > 0)
        i++;
    names->slots[i % MESSAGE_NAME_SLOTS] = added;
    return true;
}
