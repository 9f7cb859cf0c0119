/*
 * The JSON documents about the daemon: stats and ping. docs/protocol.md specifies them. Any I/O
 * thread; the returned string is the caller's, NULL where memory runs out.
 */
#ifndef FRONT_DOCUMENT_H
#define FRONT_DOCUMENT_H

struct front;

char *document_stats(struct front *front);
char *document_ping(struct front *front);

#endif
