/*
 * A client's state, under its lock; see client.c for opening and event loops, run.c, tensors.c and
 * memory.c for what is asked of the server, wait.c for blocking calls, pump.c for sending and
 * finishing and receive.c for receiving.
 *
 * Of the threads in blocking calls one at a time is the leader: it polls the socket for all, and
 * the others wait on `changed`. `wake` interrupts its poll when there is something new to send.
 */
#ifndef CLIENT_STATE_H
#define CLIENT_STATE_H

#include "address.h"
#include "compose.h"
#include "secure.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CALL_HASH = 1024, CLIENT_DESCRIPTORS = 4 };

struct xop_client {
    pid_t pid;
    /* A page that a child finds empty: to ask the kernel for the process at every call takes
     * longer. NULL where that is not to be had. */
    const char *ours;
    int fd, wake;
    struct secure *secure; /* TLS; NULL: none */
    struct address address;
    uint64_t max_body, max_in_flight, max_response, generation, spin_ns;
    bool greeted, draining;
    _Atomic uint64_t handles; /* given so far */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_leader;
    uint32_t signals; /* that have interrupted a leader */
    bool dead;
    bool wake_failed;
    int send_failed; /* errno of a send: the end is near, but there may be something to read */
    struct xop_error death;

    uint64_t next_id;
    struct call_pool pool;
    struct call *by_id[CALL_HASH];
    struct call *newest, *oldest; /* of all calls not finished */
    uint64_t in_flight;           /* sent or being sent, not answered */
    uint32_t unfinished;          /* that somebody waits for */
    uint32_t with_deadline;
    uint64_t first_deadline_ns; /* no deadline is before it */
    struct call *out, **out_tail;
    struct call *finished, **finished_tail; /* callbacks to run */
    struct call *running;                   /* whose callbacks run now */
    pthread_t caller;                       /* runs callbacks: what they submit */
    bool has_caller;                        /* is sent together */
    uint32_t held;                          /* calls that wait for that */

    struct attached attached;
    uint32_t exports; /* that are to bring a descriptor */
    int descriptors[CLIENT_DESCRIPTORS];
    uint32_t ndescriptors;

    struct reader *reader;
    struct call *receiving; /* whose body is being received */
    unsigned char *buffer;  /* for receiving */
};

#define CLIENT_BUFFER (256u * 1024)

/* run.c */

/* A client may be used by the process that opened it alone. */
bool run_is_ours(const struct xop_client *client);
enum xop_status run_usable(const struct xop_client *client, struct xop_error *error);

/* A call of what was composed, with an id of its own, not queued yet; NULL with error. The lock is
 * held. */
struct call *run_call(struct xop_client *client, struct composed *composed,
                      struct xop_error *error);

/* Queues a call, or all pieces of one. Where that is not possible it is freed. The lock is held. */
enum xop_status run_start(struct xop_client *client, struct call *call, struct call *pieces,
                          struct xop_error *error);

/* The same, and waits for what comes of it: the result, with its error copied to `error`. NULL
 * where memory runs out. The lock is held before and after. */
struct xop_result *run_wait(struct xop_client *client, struct call *call, struct call *pieces,
                            struct xop_error *error);

/* What was composed, sent and waited for; its status. Takes the lock. */
enum xop_status run_simple(struct xop_client *client, struct composed *composed,
                           struct xop_error *error);

/* wait.c, all under the lock. */

/* Interrupts the leader's poll, so that it looks again at what there is to send. */
void wait_wake(struct xop_client *client);
/* Waits for another thread to change something. False once until_ns (0: never) has passed. */
bool wait_change(struct xop_client *client, uint64_t until_ns);
/* A turn of waiting: as the leader, or for the leader. False once until_ns (0: never) has passed.
 */
bool wait_turn(struct xop_client *client, uint64_t until_ns);
/* How long options' spin_us, which may be 0, lets it poll before it sleeps. */
uint64_t wait_spin_ns(uint32_t spin_us);

/* pump.c, all under the lock. */

/* Queues a call. The client must be alive. */
void pump_add(struct xop_client *client, struct call *call);
/* Counts a call that is sent in pieces, which are queued one by one. */
void pump_add_whole(struct xop_client *client, struct call *call);
/* Sends and receives what does not block, enforces deadlines. Failures end the client. */
void pump_turn(struct xop_client *client, bool may_read);
/* Sends what was queued, or leaves that to the callback that queued it. */
void pump_send(struct xop_client *client);
/* Ends the connection: every call is finished with the status and sentence. */
void pump_kill(struct xop_client *client, enum xop_status status, const char *text);
/* Takes a call's result away from it before the server's answer is there. */
void pump_abandon(struct xop_client *client, struct call *call, enum xop_status status,
                  const char *text);
struct call *pump_find(struct xop_client *client, uint64_t id);
/* Whether a callback of that id is being run by some thread. */
bool pump_is_running(const struct xop_client *client, uint64_t id);
/* Milliseconds until a deadline may be due, -1 for never. */
int pump_timeout(const struct xop_client *client);
bool pump_wants_output(const struct xop_client *client);
/* Runs the callbacks of what is finished, with the lock released around each. */
void pump_run_callbacks(struct xop_client *client);

/* The server's answer to a call is whole. */
void pump_answered(struct xop_client *client, struct call *call);

/* receive.c, under the lock: receives what does not block. */

void receive_some(struct xop_client *client);
extern const struct reader_handler receive_handler;

/* Where the caller takes no error, its sentence goes to the function's own. */
static inline struct xop_error *state_error(struct xop_error *error, struct xop_error *own) {
    xop_error_clear(own);
    return error ? error : own;
}

#endif
