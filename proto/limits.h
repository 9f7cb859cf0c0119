/*
 * The limits of the protocol that are not part of the public types: one table, for both ends.
 * docs/protocol.md states each; a server may announce lower ones in its hello.
 */
#ifndef PROTO_LIMITS_H
#define PROTO_LIMITS_H

#include <xop/types.h>

#define PROTO_VERSION 1
#define PROTO_MAX_HEADER 65536u /* bytes of a frame's header */
#define PROTO_MAX_DEPTH 6       /* maps and arrays inside each other in a header */
#define PROTO_MAX_BODY (UINT64_C(1) << 62)
#define PROTO_ALIGNMENT 64u    /* of every tensor in a body or in client memory */
#define PROTO_MAX_TOKEN 4096u  /* bytes of a token in hello */
#define PROTO_MAX_AGENT 128u   /* bytes of the client's description of itself */
#define PROTO_MAX_MESSAGE 511u /* bytes of an error's sentence */

#endif
