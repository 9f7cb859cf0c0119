/*
 * libxopclient in a libevent loop: the whole of it, to use or to learn from. Everything is called
 * on the loop's thread.
 *
 *     struct xop_libevent adapter;
 *     xop_libevent_attach(&adapter, base, client);
 *     xop_submit(client, &request, done, arg, NULL, &error);
 *     xop_libevent_update(&adapter);          // after every xop_submit or xop_cancel
 *     event_base_dispatch(base);              // callbacks run from here
 *     xop_libevent_detach(&adapter);          // before xop_client_close
 */
#ifndef XOP_ADAPTER_LIBEVENT_H
#define XOP_ADAPTER_LIBEVENT_H

#include <event2/event.h>
#include <poll.h>
#include <xop/client.h>

struct xop_libevent {
    struct xop_client *client;
    struct event_base *base;
    struct event *event;
    short events;
    struct xop_error error; /* why the connection ended, once `ended` */
    bool ended;
};

static inline void xop_libevent_detach(struct xop_libevent *adapter) {
    if (adapter->event)
        event_free(adapter->event);
    adapter->event = NULL;
}

static inline void xop_libevent_on_event(evutil_socket_t fd, short what, void *arg);

/* Waits for what the client waits for now. False where memory runs out. */
static inline bool xop_libevent_update(struct xop_libevent *adapter) {
    short poll_events = xop_client_events(adapter->client);
    short events = (short)(EV_READ | (poll_events & POLLOUT ? EV_WRITE : 0));
    int ms = xop_client_timeout(adapter->client);
    struct timeval after = {ms / 1000, ms % 1000 * 1000};
    if (adapter->ended)
        return true;
    if (!adapter->event || events != adapter->events) {
        xop_libevent_detach(adapter);
        adapter->events = events;
        adapter->event = event_new(adapter->base, xop_client_descriptor(adapter->client),
                                   (short)(events | EV_PERSIST), xop_libevent_on_event, adapter);
    }
    return adapter->event && event_add(adapter->event, ms < 0 ? NULL : &after) == 0;
}

static inline void xop_libevent_on_event(evutil_socket_t fd, short what, void *arg) {
    struct xop_libevent *adapter = (struct xop_libevent *)arg;
    (void)fd, (void)what;
    if (xop_client_dispatch(adapter->client, &adapter->error) != XOP_OK) {
        adapter->ended = true;
        xop_libevent_detach(adapter);
    } else if (adapter->event) { /* else a callback detached it */
        xop_libevent_update(adapter);
    }
}

static inline bool xop_libevent_attach(struct xop_libevent *adapter, struct event_base *base,
                                       struct xop_client *client) {
    adapter->client = client;
    adapter->base = base;
    adapter->event = NULL;
    adapter->events = 0;
    adapter->ended = false;
    return xop_libevent_update(adapter);
}

#endif
