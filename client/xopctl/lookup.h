/* Finding things in the documents of a server, which may lack any of them. */
#ifndef XOPCTL_LOOKUP_H
#define XOPCTL_LOOKUP_H

#include <jansson.h>

/* A string of an object, "" where there is none. It is the document's. */
const char *lookup_text(json_t *object, const char *key);

/* The place of an object with that name in a list, -1 where there is none. */
int lookup_index(json_t *list, const char *name);
/* The same, for a name that does not end with a 0, and the object itself or NULL. */
json_t *lookup_named(json_t *list, const char *name, size_t bytes);

#endif
