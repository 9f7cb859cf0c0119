/*
 * An I/O thread: its loop, and the commands with which the main thread and other I/O threads reach
 * it. thread_post may be called from any thread; the rest is the main thread's.
 */
#ifndef FRONT_THREAD_H
#define FRONT_THREAD_H

#include "io.h"

enum thread_command {
    THREAD_ADOPT,       /* a new connection: fd, peer */
    THREAD_READY,       /* a generation serves: its reference is handed over */
    THREAD_GONE,        /* the worker of the current generation was reaped */
    THREAD_UNAVAILABLE, /* there will be no worker for a while: answer what waits */
    THREAD_EXPORTED,    /* a memory's descriptor for a client: fd, number */
    THREAD_SPACE,       /* the inbox has space again */
    THREAD_CONFIG,      /* the front's configuration has changed */
    THREAD_POLICY,      /* other policies are in force */
    THREAD_DRAIN,       /* say goaway, take no new requests */
    THREAD_LEAVE,       /* answer what has come, then close every connection in order */
    THREAD_STOP         /* end every connection and the thread */
};

enum xop_status thread_start(struct front *front, uint32_t index, struct xop_error *error);
/* Waits for a stopped thread and frees what it has. */
void thread_join(struct io_thread *thread);

/* Returns false where memory ran out: nothing was taken then. */
/* number: of a memory. */
bool thread_post_export(struct io_thread *thread, int fd, uint64_t number);
bool thread_post(struct io_thread *thread, enum thread_command type, struct generation *generation);
/* A new connection, with TLS or without. */
bool thread_post_adopt(struct io_thread *thread, int fd, const char *peer, bool tls);
void thread_wake_waiting(struct front *front);

#endif
