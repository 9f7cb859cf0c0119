/*
 * HTTP for people and their monitors: /metrics, /livez, /readyz and a status page. Read only, and
 * on a thread of its own, which no request of a client ever waits for. The main thread opens and
 * closes it.
 */
#ifndef FRONT_HTTP_H
#define FRONT_HTTP_H

#include "shared.h"

/* Does nothing where http.listen is empty. Every I/O thread has been started. */
enum xop_status http_open(struct front *front, struct xop_error *error);
void http_close(struct front *front);

#endif
