/*
 * The structs of the front's I/O side, and which thread owns them.
 *
 * An I/O thread owns its connections, their requests and responses, its lane to the worker and its
 * slab of the inbox; nobody else touches these, so there are no locks on a request's way. Main and
 * I/O threads talk through a queue of commands (thread.h). What others may read of a thread while
 * it runs (statistics) is atomic; the list of connections is under `lock`.
 *
 * A request's life: RECEIVING its body into the inbox, BLOCKED while others that conflict run
 * before it, QUEUED for the worker, WAITING for a memory that it names to be made usable, SUBMITTED
 * in a record, freed once answered and no longer in the worker's hands. It may be answered before
 * (deadline, cancel, its connection gone): then it only waits for the worker to let go of its
 * memory, or for those that block it.
 */
#ifndef FRONT_IO_H
#define FRONT_IO_H

#include "daemon/config.h"
#include "daemon/shared/seam.h"
#include "daemon/shared/table.h"
#include "generation.h"
#include "inbox.h"
#include "order.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "stats.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <sys/uio.h>

struct front;
struct identity;
struct memory;
struct staying;
struct resident;
struct shown;
struct tls_session;

enum request_state {
    REQUEST_RECEIVING,
    REQUEST_BLOCKED,
    REQUEST_QUEUED,
    REQUEST_WAITING,
    REQUEST_SUBMITTED,
    REQUEST_DONE
};

struct request {
    struct request *next;          /* in the queue it is in, or among the free ones */
    struct request *newer, *older; /* among its connection's */
    struct request *same_hash;     /* in the thread's table of ids */
    struct io_thread *thread;
    struct connection *connection; /* NULL once answered */
    uint64_t id;
    enum request_state state;
    enum seam_kind kind;
    bool is_internal; /* nobody's: about a memory */
    bool is_export;
    bool alone;    /* a suspect: see complete.h */
    bool requeued; /* in the queue of those to be run again */
    bool has_timer;
    bool succeeded;
    uint8_t deaths; /* workers that died while this was launched */
    char op[XOP_MAX_NAME + 1];
    uint64_t op_generation; /* for which op_index was looked up; 0: none */
    uint32_t op_index, op_slot;
    enum xop_pass pass;
    uint8_t flags, nin, nout;
    int8_t priority;
    uint32_t client;
    uint64_t deadline_ns, accepted_ns;
    uint64_t body_bytes, cost;
    uint64_t bytes_in, bytes_out; /* a probe's */
    struct inbox_block block;
    /* Who pays, see identity_take: for one request in flight, until it is answered, and for `paid`
     * bytes of the inbox. */
    struct identity *in_flight, *payer;
    uint64_t paid;
    struct access *accesses; /* see order.h */
    struct edge *edges;
    uint32_t blockers;
    uint64_t aborted_by;     /* a request that it depends on and that failed; 0: none */
    struct staying *staying; /* what it has to do with tensors that stay here; NULL: nothing */
    struct memory *memory;   /* adopt, release: which; else the one that it waits for */
    uint32_t nattrs, attr_bytes;
    uint32_t record;
    uint64_t tag; /* in the generation that has it */
    struct event timer;
    unsigned char *long_arguments; /* where they do not fit below */
    alignas(8) unsigned char arguments[SEAM_INLINE_ARGUMENTS];
};

#define REQUEST_PRIORITIES 16u /* -8 to 7 */

#define RESPONSE_PARTS (1 + 2 * XOP_MAX_OUTPUTS)
#define RESPONSE_HEADER 3584u

struct response {
    struct response *next;
    struct generation *generation; /* whose outbox block this sends; NULL: none */
    uint64_t block_offset, block_bytes;
    void *document;        /* body that is freed after sending; NULL: none */
    int fd;                /* goes with its first byte; -1: none */
    uint32_t nparts, part; /* part: the first not wholly sent */
    struct iovec parts[RESPONSE_PARTS];
    unsigned char header[RESPONSE_HEADER];
};

enum connection_state {
    CONNECTION_FRAME,  /* waiting for a prefix and header */
    CONNECTION_SPACE,  /* waiting for inbox space for a body */
    CONNECTION_BODY,   /* receiving a body, or dropping it where `receiving` is NULL */
    CONNECTION_CLOSING /* sending what is left, then reading to the end, so that it arrives */
};

#define CONNECTION_BUFFER (72u * 1024)
#define CONNECTION_FDS 16u /* descriptors that came and whose frame is still to be read */

/* What a connection has in the server. */
struct holdings {
    struct table residents, contexts, memories; /* by the client's numbers */
    struct resident *list;                      /* all that count against its quota */
    uint32_t nmemories;
};

struct connection {
    struct connection *next, *previous; /* the thread's, under its lock */
    struct connection *next_active, *next_flush, *next_waiting;
    struct io_thread *thread;
    int fd;
    uint32_t number;
    enum connection_state state;
    bool greeted, awaits_worker, active, flushing, waiting, ended, write_armed, read_armed, shut;
    bool doomed; /* an answer was lost: it is ended when its output is next looked at */
    char peer[96], agent[PROTO_MAX_AGENT + 1];
    uint64_t connected_ns;
    uint64_t stage_deadline_ns;        /* 0: none */
    uint32_t turn_frames, frame_bytes; /* taken in this turn; the mean of what one has */
    /* Since when a body is received and output is unsent (0: not), and how much came or went. */
    uint64_t body_began_ns, body_bytes, out_began_ns, out_sent;
    struct event read_event, write_event;

    unsigned char *buffer; /* CONNECTION_BUFFER */
    size_t start, end;     /* what of it is not yet used */
    bool has_prefix;
    struct frame_prefix prefix;
    struct request *receiving;
    unsigned char *body_at;
    uint64_t body_left;

    uint64_t awaiting_id;               /* a describe that waits for a worker, */
    char awaiting_op[XOP_MAX_NAME + 1]; /* and what it asks for */

    struct identity *identity; /* NULL before hello; changed under the thread's lock */
    struct shown *shown;       /* by what it was found, see admit.c */

    struct tls_session *tls; /* NULL: none */
    bool handshaking;

    bool is_unix;
    int fds[CONNECTION_FDS]; /* oldest first */
    uint32_t nfds;
    struct holdings holdings;

    struct request *requests; /* all not answered, newest first */
    /* QUEUED ones, by priority: a bit in `queued` for each list that is not empty. */
    struct request *queue[REQUEST_PRIORITIES], **queue_tail[REQUEST_PRIORITIES];
    uint32_t queued;
    uint64_t deficit;
    struct response *out, **out_tail;
    uint64_t out_bytes, out_count;
    struct client_stats stats;
};

enum { REQUEST_HASH = 4096 };

struct io_thread {
    struct front *front;
    struct config config; /* its own copy */
    uint32_t index;
    pthread_t pthread;
    struct event_base *base;
    bool stop;
    struct event *tick;
    _Atomic uint64_t beat_ns; /* of the last tick */

    pthread_mutex_t commands_lock;
    struct command *commands, **commands_tail;
    int commands_fd;
    struct event *commands_event;

    pthread_mutex_t lock; /* of the list of connections */
    struct connection *connections;
    _Atomic uint32_t nconnections;
    uint32_t frames;                /* since the last tick */
    _Atomic uint32_t recent_frames; /* between the last two */
    _Atomic uint32_t in_flight;
    _Atomic uint32_t unsent; /* responses */

    struct message_decoder *decoder;
    struct message message; /* the one being handled */
    struct request *by_id[REQUEST_HASH];

    struct generation *generation; /* NULL while there is none to submit to */
    struct seam_lane lane;
    struct event *lane_event;
    struct request **records; /* by record index; NULL: free */
    uint32_t *free_records;
    uint32_t nfree;
    uint64_t next_tag;
    struct request **scratch; /* as many as records */
    uint64_t *releases;       /* that did not fit into the ring */
    size_t nreleases, releases_capacity;

    struct catalogue *catalogue;                  /* the last one; NULL before the first worker */
    struct request *internal, **internal_tail;    /* about memories, nobody's: before all others */
    struct request *again, **again_tail;          /* to be run again, before all others */
    struct request *unblocked, **unblocked_tail;  /* see order.h */
    struct connection *active, **active_tail;     /* with QUEUED requests, round robin */
    struct connection *waiting, **waiting_tail;   /* for inbox space */
    struct connection *flush;                     /* with new output */
    uint64_t outstanding_cost, outstanding_small; /* small: of those that pass a full window */

    struct memory *memories; /* see memory.h */
    struct memory *slabs;
    uint64_t memory_numbers;
    uint64_t access_sequence;
    struct access *free_accesses;
    struct edge *free_edges;
    struct staying *free_stayings;

    struct request *free_requests;
    struct response *free_responses;
    struct op_stats (*ops)[XOP_PASS_COUNT]; /* STATS_SLOTS of them */
    struct thread_stats stats;
    bool draining, leaving;
    _Atomic bool settled, left; /* how far it is with either; see drain.h */
    _Atomic bool running;       /* while draining: whether the worker is at a request of it */
    bool space_freed;           /* in this round, in the inbox */
    /* For polling: events of sockets so far, when there was work last, and the mean time between.
     */
    uint64_t events, last_work_ns, gap_ns;
};

/* Monotonic nanoseconds. */
uint64_t io_now(void);
static inline uint64_t io_after_ms(uint64_t ms) { return io_now() + ms * 1000000; }

#endif
