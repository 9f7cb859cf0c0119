#include "order.h"

#include "dispatch.h"
#include "io.h"
#include "request.h"

#include <stdlib.h>

#define WINDOW_SHIFT 14 /* 16 KiB */

void object_init(struct object *object, void (*drop)(struct object *)) {
    object->references = 1;
    object->drop = drop;
}

struct object *object_hold(struct object *object) {
    object->references++;
    return object;
}

void object_drop(struct object *object) {
    if (--object->references == 0)
        object->drop(object);
}

/* ---- Memory that is used again ---- */

static struct access *access_new(struct io_thread *thread) {
    struct access *access = thread->free_accesses;
    if (!access)
        return malloc(sizeof *access);
    thread->free_accesses = access->older;
    return access;
}

static bool add_edge(struct request *from, struct request *to, bool needs) {
    struct io_thread *thread = from->thread;
    struct edge *edge = thread->free_edges;
    if (edge)
        thread->free_edges = edge->next;
    else if (!(edge = malloc(sizeof *edge)))
        return false;
    *edge = (struct edge){from->edges, to, needs};
    from->edges = edge;
    to->blockers++;
    return true;
}

/* ---- Conflicts ---- */

static bool overlaps(const struct access *a, const struct access *b) {
    return a->begin < b->end && b->begin < a->end;
}

/* Blocks the request of `mine` by those in the list that conflict. A writer of the whole range is
 * itself behind everything older in it, so nothing beyond that has to be looked at. */
static bool block_by(const struct order_list *list, const struct access *mine) {
    uint64_t covered = 0;
    for (struct access *w = list->writers; w; w = w->older) {
        if (!overlaps(w, mine) || w->request == mine->request)
            continue;
        if (!add_edge(w->request, mine->request, !mine->write))
            return false;
        if (w->begin <= mine->begin && w->end >= mine->end) {
            covered = w->sequence;
            break;
        }
    }
    if (!mine->write)
        return true;
    for (struct access *r = list->readers; r && r->sequence > covered; r = r->older)
        if (overlaps(r, mine) && r->request != mine->request &&
            !add_edge(r->request, mine->request, false))
            return false;
    return true;
}

/* The list that a range belongs to. */
static struct order_list *list_of(struct object *object, uint64_t begin, uint64_t end) {
    uint64_t window = begin >> WINDOW_SHIFT;
    if (!object->windows || (end - 1) >> WINDOW_SHIFT != window)
        return &object->wide;
    return &object->windows[window % ORDER_WINDOWS];
}

static bool block_by_all(struct object *object, const struct access *mine) {
    struct order_list *list = list_of(object, mine->begin, mine->end);
    if (!block_by(&object->wide, mine))
        return false;
    if (list != &object->wide)
        return block_by(list, mine);
    for (uint32_t i = 0; object->windows && i < ORDER_WINDOWS; i++)
        if (!block_by(&object->windows[i], mine))
            return false;
    return true;
}

bool order_access(struct request *request, struct object *object, uint64_t begin, uint64_t end,
                  bool write) {
    struct io_thread *thread = request->thread;
    struct access *access = access_new(thread);
    if (!access)
        return false;
    if (end <= begin)
        end = begin + 1; /* an empty tensor's making has its place in the order too */
    *access = (struct access){.next = request->accesses,
                              .request = request,
                              .object = object_hold(object),
                              .begin = begin,
                              .end = end,
                              .sequence = ++thread->access_sequence,
                              .write = write};
    bool blocked = block_by_all(object, access);
    struct order_list *list = list_of(object, begin, end);
    struct access **first = write ? &list->writers : &list->readers;
    access->older = *first;
    if (access->older)
        access->older->newer = access;
    *first = access;
    request->accesses = access;
    return blocked;
}

static void unlink_access(struct access *access) {
    struct order_list *list = list_of(access->object, access->begin, access->end);
    if (access->newer)
        access->newer->older = access->older;
    else if (access->write)
        list->writers = access->older;
    else
        list->readers = access->older;
    if (access->older)
        access->older->newer = access->newer;
}

void order_release(struct request *request, bool failed) {
    struct io_thread *thread = request->thread;
    while (request->accesses) {
        struct access *access = request->accesses;
        request->accesses = access->next;
        unlink_access(access);
        object_drop(access->object);
        access->older = thread->free_accesses;
        thread->free_accesses = access;
    }
    while (request->edges) {
        struct edge *edge = request->edges;
        struct request *dependent = edge->dependent;
        request->edges = edge->next;
        if (failed && edge->needs && !dependent->aborted_by)
            dependent->aborted_by = request->id;
        if (--dependent->blockers == 0 && dependent->state == REQUEST_BLOCKED) {
            dependent->next = NULL;
            *thread->unblocked_tail = dependent;
            thread->unblocked_tail = &dependent->next;
        }
        edge->next = thread->free_edges;
        thread->free_edges = edge;
    }
}

void order_run(struct io_thread *thread) {
    /* A list and no recursion: a chain of requests that abort each other may be long. */
    while (thread->unblocked) {
        struct request *request = thread->unblocked;
        thread->unblocked = request->next;
        if (!thread->unblocked)
            thread->unblocked_tail = &thread->unblocked;
        request->state = REQUEST_DONE; /* in no queue */
        if (!request->connection)
            request_free(request);
        else
            dispatch_queue(request);
    }
}

void order_close(struct io_thread *thread) {
    for (struct access *access = thread->free_accesses, *next; access; access = next) {
        next = access->older;
        free(access);
    }
    for (struct edge *edge = thread->free_edges, *next; edge; edge = next) {
        next = edge->next;
        free(edge);
    }
}
