/*
 * Addresses: what may be written for one, where to look when none is given, and connecting with a
 * time limit. Stateless.
 */
#ifndef CLIENT_ADDRESS_H
#define CLIENT_ADDRESS_H

#include <sys/socket.h>
#include <sys/un.h>
#include <xop/types.h>

#define ADDRESS_MAX 300

struct address {
    bool is_unix, is_tls;
    char text[ADDRESS_MAX];  /* as "unix:..." or "tcp:host:port" or "tls:host:port" */
    struct sockaddr_un path; /* of a Unix address */
    socklen_t path_bytes;
    char host[256], port[8]; /* of a TCP or TLS address */
};

/* How many addresses a list has. Commas separate them, where an address with its scheme begins
 * behind: others belong to a path. */
uint32_t address_count(const char *list);
/* The first of a list, and what follows it: the empty string behind the last. INVALID_ARGUMENT
 * where it is too long. */
enum xop_status address_first(const char **list, char one[ADDRESS_MAX], struct xop_error *error);

/* INVALID_ARGUMENT that says what is wrong with text. */
enum xop_status address_parse(const char *text, struct address *address, struct xop_error *error);

/* A connected, non-blocking, close-on-exec socket before deadline_ns (CLOCK_MONOTONIC). A host name
 * with several addresses is tried at each. UNAVAILABLE names the address and the reason. */
enum xop_status address_connect(const struct address *address, uint64_t deadline_ns, int *fd,
                                struct xop_error *error);

/* Connects to text, or where text is NULL to the first that answers of XOP_ADDRESS, the user's
 * socket and the system's; the message then lists each one tried and why it failed. XOP_ADDRESS,
 * where it is set, is the only one. */
enum xop_status address_connect_any(const char *text, uint64_t deadline_ns, struct address *used,
                                    int *fd, struct xop_error *error);

/* The moment after so many milliseconds, which may be any number. */
uint64_t address_after_ms(uint64_t ms);
uint64_t address_now(void); /* CLOCK_MONOTONIC, ns */

#endif
