/* A token from a file, for hello. */
#ifndef XOPCTL_TOKEN_H
#define XOPCTL_TOKEN_H

#include <xop/types.h>

#define TOKEN_BYTES 4097 /* the longest, with its end */

/* The file's one line, without blanks around it. UNAVAILABLE where it cannot be read,
 * PERMISSION_DENIED where others can read it too, INVALID_ARGUMENT where it is no token. */
enum xop_status token_read(const char *path, char token[static TOKEN_BYTES],
                           struct xop_error *error);

#endif
