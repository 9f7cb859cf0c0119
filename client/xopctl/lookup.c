#include "lookup.h"

#include <string.h>

const char *lookup_text(json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

int lookup_index(json_t *list, const char *name) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i,
                       item) if (strcmp(lookup_text(item, "name"), name) == 0) return (int)i;
    return -1;
}

json_t *lookup_named(json_t *list, const char *name, size_t bytes) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *known = lookup_text(item, "name");
        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
            return item;
    }
    return NULL;
}
