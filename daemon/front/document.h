/*
 * The JSON documents about the daemon: stats, ping and probe. docs/protocol.md specifies them. Any
 * I/O thread; the returned string is the caller's, NULL where memory runs out.
 */
#ifndef FRONT_DOCUMENT_H
#define FRONT_DOCUMENT_H

#include <stdint.h>

struct front;
struct identity;
struct seam_probe;

/* only: with this identity alone of all there are; NULL: with each. */
char *document_stats(struct front *front, const struct identity *only);
char *document_ping(struct front *front);
char *document_probe(struct front *front, uint64_t bytes_in, uint64_t bytes_out,
                     const struct seam_probe *probe);

#endif
