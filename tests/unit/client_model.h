/*
 * A server for tests of libxopclient that holds memory and resident tensors as the protocol says,
 * and notes what came. What is read of it after stop() is read by one thread alone.
 */
#ifndef UNIT_CLIENT_MODEL_H
#define UNIT_CLIENT_MODEL_H

#include "client_server.h"

#include <sys/mman.h>

enum { MODEL_NOTES = 512, MODEL_THINGS = 8, MODEL_TENSOR = 1 << 20 };

/* A message that came: its numbers, and its lists as they were. */
struct note {
    struct message message;
    uint64_t body_bytes;
    bool descriptor;
};

struct model {
    struct server server;
    struct note notes[MODEL_NOTES];
    uint32_t nnotes;
    uint64_t max_in_flight;
    enum message_type refused; /* is answered with `status` */
    uint32_t refused_from;     /* the how manieth of that type, counted from 0 */
    enum xop_status status;
    uint32_t met; /* of that type */
    struct {
        uint64_t id;
        unsigned char *data;
        uint64_t bytes;
    } memories[MODEL_THINGS];
    struct {
        uint64_t handle;
        struct message_tensor type;
        unsigned char data[MODEL_TENSOR];
    } residents[MODEL_THINGS];
};

static struct model model;

/* ---- What it holds ---- */

static uint64_t model_bytes(const struct message_tensor *tensor) {
    struct xop_error error;
    uint64_t bytes = 0;
    message_tensor_bytes(tensor, &bytes, &error);
    return bytes;
}

static unsigned char *model_memory(struct model *m, uint64_t id, uint64_t offset, uint64_t bytes) {
    for (uint32_t i = 0; i < MODEL_THINGS; i++)
        if (m->memories[i].id == id && id != 0 && offset + bytes <= m->memories[i].bytes)
            return m->memories[i].data + offset;
    return NULL;
}

static int model_resident(struct model *m, uint64_t handle) {
    for (int i = 0; i < MODEL_THINGS; i++)
        if (m->residents[i].handle == handle)
            return i;
    return -1;
}

static void model_detach(struct model *m, uint32_t i) {
    munmap(m->memories[i].data, m->memories[i].bytes);
    m->memories[i].id = 0;
}

/* ---- Answers ---- */

static enum xop_status model_attach(struct model *m, const struct message *from) {
    struct server *s = &m->server;
    for (uint32_t i = 0; i < MODEL_THINGS; i++) {
        if (m->memories[i].id != 0)
            continue;
        void *data = mmap(NULL, from->length, from->write ? PROT_READ | PROT_WRITE : PROT_READ,
                          MAP_SHARED, s->descriptor, 0);
        if (data == MAP_FAILED)
            return XOP_INVALID_ARGUMENT;
        m->memories[i].id = from->handle;
        m->memories[i].data = data;
        m->memories[i].bytes = from->length;
        return XOP_OK;
    }
    return XOP_RESOURCE_EXHAUSTED;
}

static unsigned char *model_place(struct model *m, const struct message_tensor *tensor,
                                  uint64_t bytes) {
    int i;
    if (tensor->place == PLACE_BODY)
        return m->server.body + tensor->offset;
    if (tensor->place == PLACE_MEMORY)
        return model_memory(m, tensor->id, tensor->offset, bytes);
    i = tensor->place == PLACE_RESIDENT ? model_resident(m, tensor->id) : -1;
    return i < 0 ? NULL : m->residents[i].data;
}

/* Every output is the first input. */
static void model_run(struct model *m, const struct message *from, struct message *to,
                      const void **body, uint64_t *body_bytes) {
    struct message_tensor in = from->in[0];
    int resident = in.place == PLACE_RESIDENT ? model_resident(m, in.id) : -1;
    if (resident >= 0)
        in.dtype = m->residents[resident].type.dtype, in.rank = m->residents[resident].type.rank,
        memcpy(in.shape, m->residents[resident].type.shape, sizeof in.shape);
    uint64_t bytes = model_bytes(&in);
    const unsigned char *data = model_place(m, &in, bytes);
    if (!data) {
        to->status = XOP_NOT_FOUND;
        to->error = "there is no such input";
        return;
    }
    to->nout = from->nout ? from->nout : 1;
    for (uint32_t i = 0; i < to->nout; i++) {
        struct message_tensor *out = &to->out[i];
        *out = from->nout ? from->out[i] : (struct message_tensor){.place = PLACE_NONE};
        if (out->place == PLACE_OMIT)
            continue;
        out->dtype = in.dtype, out->rank = in.rank;
        memcpy(out->shape, in.shape, sizeof out->shape);
        if (out->place == PLACE_NONE) {
            out->place = PLACE_BODY;
            out->offset = 0;
            *body = data;
            *body_bytes = bytes;
            continue;
        }
        if (out->place == PLACE_RESIDENT && model_resident(m, out->id) < 0)
            m->residents[model_resident(m, 0)].handle = out->id;
        if (out->place == PLACE_RESIDENT)
            m->residents[model_resident(m, out->id)].type = in;
        memmove(model_place(m, out, bytes), data, bytes);
    }
}

static enum xop_status model_put(struct model *m, const struct message *from) {
    int i = model_resident(m, from->handle);
    if (i < 0)
        i = model_resident(m, 0);
    if (i < 0)
        return XOP_RESOURCE_EXHAUSTED;
    m->residents[i].handle = from->handle;
    m->residents[i].type = from->in[0];
    if (from->in[0].place == PLACE_MEMORY)
        memcpy(m->residents[i].data, model_place(m, &from->in[0], model_bytes(&from->in[0])),
               model_bytes(&from->in[0]));
    else
        memcpy(m->residents[i].data + from->offset, m->server.body, m->server.body_bytes);
    return XOP_OK;
}

static enum xop_status model_get(struct model *m, const struct message *from, const void **body,
                                 uint64_t *body_bytes) {
    int i = model_resident(m, from->handle);
    if (i < 0)
        return XOP_NOT_FOUND;
    *body = m->residents[i].data + from->offset;
    *body_bytes = from->length;
    if (from->nout == 0)
        return XOP_OK;
    memcpy(model_memory(m, from->out[0].id, from->out[0].offset, from->length), *body,
           from->length);
    *body_bytes = 0;
    return XOP_OK;
}

static enum xop_status model_free(struct model *m, const struct message *from) {
    int i = model_resident(m, from->handle);
    if (i < 0)
        return XOP_NOT_FOUND;
    m->residents[i].handle = 0;
    return XOP_OK;
}

static enum xop_status model_forget(struct model *m, const struct message *from) {
    for (uint32_t i = 0; i < MODEL_THINGS; i++)
        if (m->memories[i].id == from->handle) {
            model_detach(m, i);
            return XOP_OK;
        }
    return XOP_NOT_FOUND;
}

static void model_answer(struct model *m) {
    const struct message *from = &m->server.message;
    struct message to = {.type = MESSAGE_RESULT, .id = from->id, .device = -1};
    const void *body = NULL;
    uint64_t body_bytes = 0;
    if (from->type == m->refused && m->met++ >= m->refused_from) {
        to.status = m->status;
        to.error = "the model refuses";
        say(&m->server, &to, NULL, 0);
        return;
    }
    switch (from->type) {
    case MESSAGE_ATTACH: to.status = model_attach(m, from); break;
    case MESSAGE_DETACH: to.status = model_forget(m, from); break;
    case MESSAGE_FORWARD:
    case MESSAGE_BACKWARD: model_run(m, from, &to, &body, &body_bytes); break;
    case MESSAGE_PUT: to.status = model_put(m, from); break;
    case MESSAGE_GET: to.status = model_get(m, from, &body, &body_bytes); break;
    case MESSAGE_FREE: to.status = model_free(m, from); break;
    case MESSAGE_PROBE:
        body = "{\"launch_ns\":1}";
        body_bytes = strlen(body);
        to.media = "application/json";
        break;
    default: break;
    }
    say(&m->server, &to, body, to.status == XOP_OK ? body_bytes : 0);
}

static void serve_model(struct server *s) {
    struct model *m = (struct model *)s; /* its first member */
    while (next(s)) {
        if (s->message.type == MESSAGE_HELLO) {
            say_hello(s, m->max_in_flight);
            continue;
        }
        struct note *note = &m->notes[m->nnotes < MODEL_NOTES - 1 ? m->nnotes++ : m->nnotes];
        note->message = s->message;
        note->body_bytes = s->body_bytes;
        note->descriptor = s->descriptor >= 0;
        model_answer(m);
    }
    for (uint32_t i = 0; i < MODEL_THINGS; i++)
        if (m->memories[i].id)
            model_detach(m, i);
}

/* ---- The test's side ---- */

/* Between the two its behaviour may be set. */
static void model_reset(struct model *m) {
    memset(m, 0, sizeof *m);
    m->max_in_flight = 100;
}

static struct xop_client *model_open(struct model *m) {
    start(&m->server, serve_model);
    return open_client_of(&m->server);
}

static struct xop_client *model_start(struct model *m) {
    model_reset(m);
    return model_open(m);
}

static void model_stop(struct model *m, struct xop_client *client) {
    xop_client_close(client);
    stop(&m->server);
}

static inline uint32_t model_count(const struct model *m, enum message_type type) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->nnotes; i++)
        n += m->notes[i].message.type == type;
    return n;
}

/* The nth message of a type, counted from 0. */
static inline const struct note *model_note(const struct model *m, enum message_type type,
                                            uint32_t n) {
    for (uint32_t i = 0; i < m->nnotes; i++)
        if (m->notes[i].message.type == type && n-- == 0)
            return &m->notes[i];
    fail_msg("no %s came", message_type_name(type));
    return NULL;
}

static inline struct xop_memory *model_memory_of(size_t bytes) {
    struct xop_memory *memory;
    struct xop_error error;
    if (xop_memory_create(bytes, &memory, &error) != XOP_OK)
        fail_msg("%s", error.message);
    return memory;
}

static inline void must(enum xop_status status, const struct xop_error *error) {
    if (status != XOP_OK)
        fail_msg("%s: %s", xop_status_name(status), error->message);
}

#endif
