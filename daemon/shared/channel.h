/*
 * Packets with descriptors between processes of one xopd, over SOCK_SEQPACKET socketpairs: parent
 * and front, front and worker. A packet is at most CHANNEL_BYTES long and carries at most
 * CHANNEL_FDS descriptors. Stateless; a socket belongs to one thread.
 */
#ifndef SHARED_CHANNEL_H
#define SHARED_CHANNEL_H

#include <xop/types.h>

#define CHANNEL_BYTES 4096u
#define CHANNEL_FDS 80u

/* A connected pair, close-on-exec, non-blocking where asked. */
enum xop_status channel_pair(int sockets[2], bool nonblocking, struct xop_error *error);

/* Sends one packet: head, then payload (which may be NULL). UNAVAILABLE where the peer is gone or
 * its buffer is full. The descriptors stay the caller's. */
enum xop_status channel_send(int socket, const void *head, size_t head_bytes, const void *payload,
                             size_t payload_bytes, const int *fds, uint32_t nfds,
                             struct xop_error *error);

/* Receives one packet into buffer of CHANNEL_BYTES. *bytes is its length, 0 at the end of the
 * connection. Descriptors are close-on-exec and the caller's; those beyond what fds holds are
 * closed. UNAVAILABLE where nothing is there (a non-blocking socket) or the connection is broken:
 * *would_block tells the first. */
enum xop_status channel_receive(int socket, void *buffer, size_t *bytes, int *fds, uint32_t max_fds,
                                uint32_t *nfds, bool *would_block, struct xop_error *error);

#endif
