#include "memory.h"

#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct attachment {
    struct attachment *next; /* of the memory */
    struct xop_memory *memory;
    struct xop_client *client;
    uint64_t id;
    bool write;
    bool usable; /* the server knows it, and nobody detaches it */
    bool busy;   /* it is being attached or detached: whoever does that ends it */
};

struct xop_memory {
    pid_t pid;
    int fd;
    unsigned char *data;
    size_t bytes;
    pthread_mutex_t lock;
    bool freed;          /* by its owner */
    atomic_uint holders; /* its owner, clients that look at it, and busy attachments */
    struct attachment *attachments;
};

/* ---- What a client has attached ---- */

/* Where in the list memory at data is, or belongs. */
static uint32_t position(const struct attached *attached, const void *data) {
    uint32_t low = 0, high = attached->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if ((uintptr_t)attached->list[middle]->memory->data <= (uintptr_t)data)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool attached_find(const struct attached *attached, const void *data, uint64_t bytes, bool write,
                   struct message_tensor *to) {
    uint32_t at;
    if (attached->n == 0 || bytes == 0 || (at = position(attached, data)) == 0)
        return false;
    const struct attachment *attachment = attached->list[at - 1];
    const struct xop_memory *memory = attachment->memory;
    uint64_t offset = (uintptr_t)data - (uintptr_t)memory->data;
    if (!attachment->usable || (write && !attachment->write) || offset % PROTO_ALIGNMENT != 0 ||
        offset >= memory->bytes || bytes > memory->bytes - offset)
        return false;
    to->place = PLACE_MEMORY;
    to->id = attachment->id;
    to->offset = offset;
    return true;
}

static bool add(struct attached *attached, struct attachment *attachment) {
    uint32_t at = position(attached, attachment->memory->data);
    if (attached->n == attached->capacity) {
        uint32_t capacity = attached->capacity ? 2 * attached->capacity : 8;
        struct attachment **list = realloc(attached->list, capacity * sizeof *list);
        if (!list)
            return false;
        attached->list = list;
        attached->capacity = capacity;
    }
    memmove(attached->list + at + 1, attached->list + at,
            (attached->n - at) * sizeof(struct attachment *));
    attached->list[at] = attachment;
    attached->n++;
    return true;
}

/* Takes it out of both lists; both locks are held. */
static void take_out(struct attachment *attachment) {
    struct attached *attached = &attachment->client->attached;
    struct attachment **link = &attachment->memory->attachments;
    uint32_t at = position(attached, attachment->memory->data) - 1;
    while (attached->list[at] != attachment) /* a freed one, where another has its addresses now */
        at--;
    memmove(attached->list + at, attached->list + at + 1,
            (attached->n - at - 1) * sizeof(struct attachment *));
    attached->n--;
    while (*link != attachment)
        link = &(*link)->next;
    *link = attachment->next;
    free(attachment);
}

static struct attachment *find(const struct xop_memory *memory, const struct xop_client *client) {
    struct attachment *attachment = memory->attachments;
    while (attachment && attachment->client != client)
        attachment = attachment->next;
    return attachment;
}

/* The memory's lock is held, and released. */
static void let_go(struct xop_memory *memory) {
    bool last = atomic_fetch_sub(&memory->holders, 1) == 1;
    pthread_mutex_unlock(&memory->lock);
    if (!last)
        return;
    close(memory->fd);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* The order of the locks forbids to go from the client to its memories: each is held in between, so
 * that it is still there, and looked for again. */
void attached_drop_all(struct xop_client *client) {
    for (;;) {
        struct xop_memory *memory = NULL;
        pthread_mutex_lock(&client->lock);
        if (client->attached.n > 0) {
            memory = client->attached.list[client->attached.n - 1]->memory;
            atomic_fetch_add(&memory->holders, 1);
        }
        pthread_mutex_unlock(&client->lock);
        if (!memory)
            break;
        pthread_mutex_lock(&memory->lock);
        pthread_mutex_lock(&client->lock);
        struct attachment *attachment = find(memory, client);
        if (attachment)
            take_out(attachment);
        pthread_mutex_unlock(&client->lock);
        let_go(memory);
    }
    free(client->attached.list);
    client->attached = (struct attached){.ids = client->attached.ids};
}

/* ---- Memory ---- */

static enum xop_status map(struct xop_memory *memory, struct xop_error *error) {
    memory->fd = memfd_create("xop-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory->fd < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "memfd_create: %s", strerror(errno));
    if (ftruncate(memory->fd, (off_t)memory->bytes) < 0 ||
        fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "a memory of %zu bytes: %s", memory->bytes,
                        strerror(errno));
    void *data = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (data == MAP_FAILED)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "a memory of %zu bytes: %s", memory->bytes,
                        strerror(errno));
    memory->data = data;
    return XOP_OK;
}

/* Whole pages; 0 where there are not so many. */
static size_t whole_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), sum;
    if (__builtin_add_overflow(bytes, page - 1, &sum) || sum > INT64_MAX)
        return 0;
    return sum - sum % page;
}

enum xop_status xop_memory_create(size_t bytes, struct xop_memory **out, struct xop_error *error) {
    struct xop_error local;
    size_t whole = whole_pages(bytes);
    error = state_error(error, &local);
    *out = NULL;
    if (whole == 0)
        return xop_fail(error, bytes ? XOP_RESOURCE_EXHAUSTED : XOP_INVALID_ARGUMENT,
                        "a memory of %zu bytes is not possible", bytes);
    struct xop_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    memory->pid = getpid();
    memory->bytes = whole;
    memory->holders = 1;
    pthread_mutex_init(&memory->lock, NULL);
    if (map(memory, error) == XOP_OK) {
        *out = memory;
        return XOP_OK;
    }
    if (memory->fd >= 0)
        close(memory->fd);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
    return error->status;
}

void *xop_memory_data(const struct xop_memory *memory) { return memory->data; }

size_t xop_memory_bytes(const struct xop_memory *memory) { return memory->bytes; }

int xop_memory_descriptor(const struct xop_memory *memory) { return memory->fd; }

/* ---- Attaching and detaching ---- */

static void compose_detach(struct composed *composed, uint64_t id) {
    compose_plain(composed, MESSAGE_DETACH, OUTCOME_PLAIN);
    composed->message.handle = id;
}

/* Tells the server, and nobody waits for the answer. Where this fails it keeps the memory until the
 * connection ends. The client's lock is held. */
static void detach_unawaited(struct attachment *attachment) {
    struct xop_client *client = attachment->client;
    struct composed composed;
    struct xop_error ignored;
    if (!attachment->usable)
        return;
    compose_detach(&composed, attachment->id);
    struct call *call = run_call(client, &composed, &ignored);
    if (!call)
        return;
    call->is_internal = true;
    run_start(client, call, NULL, &ignored);
}

/* Every client that has it attached is told, but for those that are about to hear. The lock is
 * held. */
static void detach_all(struct xop_memory *memory) {
    for (struct attachment *attachment = memory->attachments, *next; attachment;
         attachment = next) {
        struct xop_client *client = attachment->client;
        next = attachment->next;
        pthread_mutex_lock(&client->lock);
        if (!attachment->busy) {
            detach_unawaited(attachment);
            take_out(attachment);
        }
        pthread_mutex_unlock(&client->lock);
    }
}

/* In a child the clients and the locks are copies of what the parent's threads may have held. */
static void free_copy(struct xop_memory *memory) {
    for (struct attachment *attachment = memory->attachments, *next; attachment;
         attachment = next) {
        next = attachment->next;
        free(attachment);
    }
    munmap(memory->data, memory->bytes);
    close(memory->fd);
    free(memory);
}

void xop_memory_free(struct xop_memory *memory) {
    if (!memory)
        return;
    if (memory->pid != getpid()) {
        free_copy(memory);
        return;
    }
    pthread_mutex_lock(&memory->lock);
    detach_all(memory);
    /* Only now may something else come to be at its addresses. */
    munmap(memory->data, memory->bytes);
    memory->freed = true;
    let_go(memory);
}

static enum xop_status check_memory(const struct xop_client *client,
                                    const struct xop_memory *memory, struct xop_error *error) {
    if (run_usable(client, error) != XOP_OK)
        return error->status;
    if (memory->pid != getpid())
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "this memory was made by the parent process: make one after fork");
    return XOP_OK;
}

/* An attachment that is not usable yet, in both lists; end_attach() is to follow. */
static struct attachment *begin_attach(struct xop_client *client, struct xop_memory *memory,
                                       bool write, struct xop_error *error) {
    struct attachment *attachment = NULL;
    pthread_mutex_lock(&memory->lock);
    pthread_mutex_lock(&client->lock);
    if (find(memory, client)) {
        xop_fail(error, XOP_ALREADY_EXISTS, "the memory is attached to this client already");
    } else if (!(attachment = calloc(1, sizeof *attachment))) {
        xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
    } else {
        *attachment = (struct attachment){
            memory->attachments, memory, client, ++client->attached.ids, write, false, true};
        if (add(&client->attached, attachment)) {
            memory->attachments = attachment;
            atomic_fetch_add(&memory->holders, 1);
        } else {
            xop_fail(error, XOP_RESOURCE_EXHAUSTED, "out of memory");
            free(attachment);
            attachment = NULL;
        }
    }
    pthread_mutex_unlock(&client->lock);
    pthread_mutex_unlock(&memory->lock);
    return attachment;
}

/* It is attached now, or not any more. */
static void end_attach(struct attachment *attachment, bool attached) {
    struct xop_memory *memory = attachment->memory;
    struct xop_client *client = attachment->client;
    pthread_mutex_lock(&memory->lock);
    pthread_mutex_lock(&client->lock);
    attachment->usable = attached;
    attachment->busy = false;
    if (memory->freed)
        detach_unawaited(attachment);
    if (!attached || memory->freed)
        take_out(attachment);
    pthread_mutex_unlock(&client->lock);
    let_go(memory);
}

enum xop_status xop_memory_attach(struct xop_client *client, struct xop_memory *memory, bool write,
                                  struct xop_error *error) {
    struct composed composed;
    struct xop_error local;
    error = state_error(error, &local);
    if (check_memory(client, memory, error) != XOP_OK)
        return error->status;
    if (!client->address.is_unix)
        return xop_fail(error, XOP_FAILED_PRECONDITION,
                        "memory is shared over Unix sockets alone: this connection is %s",
                        client->address.text);
    struct attachment *attachment = begin_attach(client, memory, write, error);
    if (!attachment)
        return error->status;
    compose_plain(&composed, MESSAGE_ATTACH, OUTCOME_PLAIN);
    composed.message.handle = attachment->id;
    composed.message.length = memory->bytes;
    composed.message.write = write;
    pthread_mutex_lock(&client->lock);
    struct call *call = run_call(client, &composed, error);
    if (call) {
        call->descriptor = memory->fd;
        xop_result_free(run_wait(client, call, NULL, error));
    }
    pthread_mutex_unlock(&client->lock);
    end_attach(attachment, error->status == XOP_OK);
    return error->status;
}

enum xop_status xop_memory_detach(struct xop_client *client, struct xop_memory *memory,
                                  struct xop_error *error) {
    struct composed composed;
    struct xop_error local;
    error = state_error(error, &local);
    if (check_memory(client, memory, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&memory->lock);
    pthread_mutex_lock(&client->lock);
    struct attachment *attachment = find(memory, client);
    bool found = attachment && attachment->usable;
    if (found) {
        attachment->usable = false; /* what is submitted from now on is sent as ever */
        attachment->busy = true;
        atomic_fetch_add(&memory->holders, 1);
    }
    pthread_mutex_unlock(&client->lock);
    pthread_mutex_unlock(&memory->lock);
    if (!found)
        return xop_fail(error, XOP_NOT_FOUND, "the memory is not attached to this client");
    compose_detach(&composed, attachment->id);
    run_simple(client, &composed, error);
    end_attach(attachment, false);
    return error->status;
}
