/*
 * A client's state, under its lock; see client.c for the public calls and pump.c for sending,
 * receiving and finishing.
 *
 * Of the threads in blocking calls one at a time is the leader: it polls the socket for all, and
 * the others wait on `changed`. `wake` interrupts its poll when there is something new to send.
 */
#ifndef CLIENT_STATE_H
#define CLIENT_STATE_H

#include "address.h"
#include "call.h"

#include <pthread.h>

enum { CALL_HASH = 1024 };

struct xop_client {
    pid_t pid;
    int fd, wake;
    struct address address;
    uint64_t max_body, max_in_flight, max_response, generation;
    bool greeted, draining;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_leader;
    bool dead;
    bool wake_failed;
    int send_failed; /* errno of a send: the end is near, but there may be something to read */
    struct xop_error death;

    uint64_t next_id;
    struct call *by_id[CALL_HASH];
    struct call *newest, *oldest; /* of all calls not finished */
    uint32_t calling;             /* callbacks that run now */
    uint64_t in_flight;           /* sent or being sent, not answered */
    uint32_t unfinished;          /* that somebody waits for */
    uint32_t with_deadline;
    struct call *out, **out_tail;           /* to be sent */
    struct call *finished, **finished_tail; /* callbacks to run */

    struct reader *reader;
    struct call *receiving; /* whose body is being received */
    unsigned char *buffer;  /* for receiving */
};

#define CLIENT_BUFFER (256u * 1024)

/* pump.c, all under the lock. */

/* Queues a call; its id is set here. The client must be alive. */
void pump_add(struct xop_client *client, struct call *call);
/* Sends and receives what does not block, enforces deadlines. Failures end the client. */
void pump_turn(struct xop_client *client, bool may_read);
/* Ends the connection: every call is finished with the status and sentence. */
void pump_kill(struct xop_client *client, enum xop_status status, const char *text);
/* Takes a call's result away from it before the server's answer is there. */
void pump_abandon(struct xop_client *client, struct call *call, enum xop_status status,
                  const char *text);
struct call *pump_find(struct xop_client *client, uint64_t id);
/* Milliseconds until the next deadline, -1 for none. */
int pump_timeout(const struct xop_client *client);
bool pump_wants_output(const struct xop_client *client);
/* Runs the callbacks of what is finished, with the lock released around each. */
void pump_run_callbacks(struct xop_client *client);

extern const struct reader_handler pump_handler;

#endif
