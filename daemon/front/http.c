#include "http.h"

#include "bind.h"
#include "metrics.h"
#include "page.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_HEADER 8192 /* bytes of a request's line and headers */
#define MAX_BODY 0      /* nothing that is offered takes one */
#define SWEEP_MS 100

/* A connection. evhttp does not say when one ends: so each one's bufferevent is held here, too, and
 * looked at while there are any. */
struct client {
    struct client *next;
    struct bufferevent *bev;
    uint64_t deadline_ns;
};

struct http {
    struct front *front;
    pthread_t thread;
    bool bound_to_evhttp; /* the listener is evhttp's to free */
    bool started;
    bool local; /* on loopback, so that a browser's pages may be turned against it */
    struct bound bound;
    struct event_base *base;
    struct evhttp *evhttp;
    struct evconnlistener *listener;
    struct event *stop, *sweep;
    int stop_fd;
    uint64_t max_clients, timeout_ms;
    struct client *clients;
    uint64_t nclients;
    bool paused; /* nobody is accepted for now */
};

/* ---- Connections ---- */

/* evhttp has let go of it: it takes its callbacks away then. */
static bool has_ended(const struct client *client) {
    void *user = NULL;
    bufferevent_getcb(client->bev, NULL, NULL, NULL, &user);
    return !user;
}

static void set_accepting(struct http *http, bool accepting) {
    if ((accepting ? evconnlistener_enable(http->listener)
                   : evconnlistener_disable(http->listener)) < 0)
        log_error("http: cannot change what is listened to");
    else
        http->paused = !accepting;
}

static void sweep_later(struct http *http) {
    const struct timeval after = {0, SWEEP_MS * 1000};
    if (!event_pending(http->sweep, EV_TIMEOUT, NULL) && event_add(http->sweep, &after) < 0)
        log_error("http: cannot set a timer");
}

static void on_sweep(evutil_socket_t fd, short what, void *arg) {
    struct http *http = arg;
    uint64_t now = io_now();
    (void)fd, (void)what;
    for (struct client **at = &http->clients; *at;) {
        struct client *client = *at;
        if (has_ended(client)) {
            *at = client->next;
            bufferevent_decref(client->bev);
            free(client);
            http->nclients--;
            continue;
        }
        /* However slowly it goes: evhttp finds the socket at its end, and clears up. */
        if (now > client->deadline_ns)
            shutdown(bufferevent_getfd(client->bev), SHUT_RDWR);
        at = &client->next;
    }
    if (http->paused && http->nclients < http->max_clients)
        set_accepting(http, true);
    if (http->clients || http->paused)
        sweep_later(http);
}

static struct bufferevent *on_connection(struct event_base *base, void *arg) {
    struct http *http = arg;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, 0);
    struct client *client = calloc(1, sizeof *client);
    if (!bev || !client) {
        log_error("http: out of memory for a connection");
        free(client);
        return bev;
    }
    bufferevent_incref(bev);
    *client = (struct client){http->clients, bev, io_after_ms(http->timeout_ms)};
    http->clients = client;
    if (++http->nclients >= http->max_clients && !http->paused) {
        log_warn("http: %llu connections: more have to wait", (unsigned long long)http->nclients);
        set_accepting(http, false);
    }
    sweep_later(http);
    return bev;
}

/* The callback for failures is called with what evhttp set for its own: so the thread knows whose
 * it is. */
static _Thread_local struct http *served;

static void on_accept_failed(struct evconnlistener *listener, void *arg) {
    struct http *http = served;
    (void)listener, (void)arg;
    log_warn("http: cannot accept: %m: trying again in %d ms", SWEEP_MS);
    set_accepting(http, false);
    sweep_later(http);
}

/* ---- Answers ---- */

static void add_header(struct evhttp_request *request, const char *name, const char *value) {
    if (evhttp_add_header(evhttp_request_get_output_headers(request), name, value) < 0)
        log_warn("http: out of memory for a header");
}

/* Every answer is a connection's last: what a client may hold is bounded so by one deadline. */
static void answer(struct evhttp_request *request, int code, const char *reason, const char *type,
                   struct evbuffer *body) {
    char length[32];
    bool head = evhttp_request_get_command(request) == EVHTTP_REQ_HEAD;
    snprintf(length, sizeof length, "%zu", evbuffer_get_length(body));
    add_header(request, "Content-Type", type);
    add_header(request, "Content-Length", length);
    add_header(request, "Connection", "close");
    add_header(request, "Cache-Control", "no-store");
    add_header(request, "X-Content-Type-Options", "nosniff");
    add_header(request, "Cross-Origin-Resource-Policy", "same-origin");
    add_header(request, "Content-Security-Policy",
               "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
               "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
    evhttp_send_reply(request, code, reason, head ? NULL : body);
}

static void XOP_PRINTF(5, 6) say(struct evhttp_request *request, struct evbuffer *body, int code,
                                 const char *reason, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int added = evbuffer_add_vprintf(body, format, args);
    va_end(args);
    if (added < 0 || evbuffer_add(body, "\n", 1) < 0)
        log_warn("http: out of memory for an answer");
    answer(request, code, reason, "text/plain; charset=utf-8", body);
}

static void on_metrics(struct http *http, struct evhttp_request *request, struct evbuffer *body) {
    if (metrics_write(http->front, body))
        answer(request, HTTP_OK, "OK", METRICS_TYPE, body);
    else if (evbuffer_drain(body, evbuffer_get_length(body)) == 0)
        say(request, body, HTTP_INTERNAL, "Internal Server Error", "out of memory");
}

static void on_livez(struct http *http, struct evhttp_request *request, struct evbuffer *body) {
    char reason[256];
    if (shared_alive(http->front, reason, sizeof reason))
        say(request, body, HTTP_OK, "OK", "alive");
    else
        say(request, body, HTTP_SERVUNAVAIL, "Service Unavailable", "not alive: %s", reason);
}

static void on_readyz(struct http *http, struct evhttp_request *request, struct evbuffer *body) {
    char reason[512];
    if (shared_ready(http->front, reason, sizeof reason))
        say(request, body, HTTP_OK, "OK", "ready");
    else
        say(request, body, HTTP_SERVUNAVAIL, "Service Unavailable", "not ready: %s", reason);
}

static void on_page(struct http *http, struct evhttp_request *request, struct evbuffer *body) {
    const struct page *page =
        page_find(evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request)));
    (void)http;
    if (evbuffer_add_reference(body, page->begin, (size_t)(page->end - page->begin), NULL, NULL) ==
        0)
        answer(request, HTTP_OK, "OK", page->type, body);
    else
        say(request, body, HTTP_INTERNAL, "Internal Server Error", "out of memory");
}

static const struct {
    const char *path;
    void (*handle)(struct http *, struct evhttp_request *, struct evbuffer *body);
} routes[] = {
    {"/metrics", on_metrics}, {"/livez", on_livez},     {"/readyz", on_readyz},
    {"/", on_page},           {"/status.css", on_page}, {"/status.js", on_page},
};

/* A page of somebody else's, whose name was made to lead to this machine (DNS rebinding), is the
 * same origin to a browser and could read everything. It cannot choose what Host says. */
static bool is_own_host(const char *host) {
    char text[64];
    struct in_addr v4;
    struct in6_addr v6;
    size_t length = strlen(host);
    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (length < 3 || length >= sizeof text || host[0] != '[' || host[length - 1] != ']')
        return false;
    snprintf(text, sizeof text, "%.*s", (int)length - 2, host + 1);
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static void route(struct http *http, struct evhttp_request *request, struct evbuffer *body) {
    enum evhttp_cmd_type command = evhttp_request_get_command(request);
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const char *host = evhttp_request_get_host(request);
    if (!host && (request->major != 1 || request->minor != 0)) {
        say(request, body, HTTP_BADREQUEST, "Bad Request", "the header Host is missing");
        return;
    }
    if (host && http->local && !is_own_host(host)) {
        say(request, body, 403, "Forbidden",
            "this server listens on loopback and goes by the names localhost, 127.0.0.1 and [::1] "
            "alone");
        return;
    }
    if (command != EVHTTP_REQ_GET && command != EVHTTP_REQ_HEAD) {
        add_header(request, "Allow", "GET, HEAD");
        say(request, body, HTTP_BADMETHOD, "Method Not Allowed", "only GET and HEAD are allowed");
        return;
    }
    for (size_t i = 0; path && i < sizeof routes / sizeof *routes; i++)
        if (strcmp(path, routes[i].path) == 0) {
            routes[i].handle(http, request, body);
            return;
        }
    say(request, body, HTTP_NOTFOUND, "Not Found",
        "there are /, /metrics, /livez and /readyz, and nothing else");
}

static void on_request(struct evhttp_request *request, void *arg) {
    struct evbuffer *body = evbuffer_new();
    if (body)
        route(arg, request, body);
    else
        evhttp_send_error(request, HTTP_INTERNAL, NULL);
    if (body)
        evbuffer_free(body);
}

/* ---- The thread ---- */

static void on_stop(evutil_socket_t fd, short what, void *arg) {
    struct http *http = arg;
    (void)fd, (void)what;
    event_base_loopbreak(http->base);
}

static void *run(void *arg) {
    struct http *http = served = arg;
    if (event_base_dispatch(http->base) < 0)
        log_error("http: its loop has failed: no more is answered");
    return NULL;
}

static bool is_loopback(const struct addrinfo *info) {
    if (info->ai_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(void *)info->ai_addr)->sin_addr.s_addr) >> 24 ==
               127;
    return info->ai_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(void *)info->ai_addr)->sin6_addr);
}

static enum xop_status open_socket(struct http *http, struct xop_error *error) {
    const struct config *config = http->front->config;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *info;
    char text[CONFIG_STRING], *host, *port;
    snprintf(text, sizeof text, "%s", config->http_listen);
    if (config_scheme(text) == CONFIG_UNIX)
        return bind_unix(config, text + 5, &http->bound, error);
    if (!config_split(text, &host, &port) || getaddrinfo(host, port, &hints, &info) != 0)
        return xop_fail(error, XOP_UNAVAILABLE, "http.listen: %s is no numeric address",
                        config->http_listen);
    http->local = is_loopback(info);
    enum xop_status status = bind_tcp(info, config->http_listen, &http->bound, error);
    freeaddrinfo(info);
    return status;
}

static bool open_events(struct http *http) {
    struct event_config *config = event_config_new();
    if (!config)
        return false;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    http->base = event_base_new_with_config(config);
    event_config_free(config);
    http->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!http->base || http->stop_fd < 0)
        return false;
    http->evhttp = evhttp_new(http->base);
    http->stop = event_new(http->base, http->stop_fd, EV_READ, on_stop, http);
    http->sweep = evtimer_new(http->base, on_sweep, http);
    http->listener =
        evconnlistener_new(http->base, NULL, NULL, LEV_OPT_CLOSE_ON_EXEC, 0, http->bound.fd);
    return http->evhttp && http->stop && http->sweep && http->listener &&
           event_add(http->stop, NULL) == 0;
}

static void set_limits(struct http *http) {
    evhttp_set_max_headers_size(http->evhttp, MAX_HEADER);
    evhttp_set_max_body_size(http->evhttp, MAX_BODY);
    /* Methods that it does not let through it answers as if they did not exist. */
    evhttp_set_allowed_methods(http->evhttp, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                                 EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                                 EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE |
                                                 EVHTTP_REQ_PATCH);
    evhttp_set_bevcb(http->evhttp, on_connection, http);
    evhttp_set_gencb(http->evhttp, on_request, http);
}

enum xop_status http_open(struct front *front, struct xop_error *error) {
    if (!*front->config->http_listen)
        return XOP_OK;
    struct http *http = front->http = calloc(1, sizeof *http);
    if (!http)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "http: out of memory");
    http->front = front;
    http->bound.fd = http->stop_fd = -1;
    http->max_clients = front->config->http_max_connections;
    http->timeout_ms = front->config->http_timeout_ms;
    if (open_socket(http, error) != XOP_OK)
        return error->status;
    if (!open_events(http))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "http: out of memory for events");
    set_limits(http);
    if (!evhttp_bind_listener(http->evhttp, http->listener))
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "http: out of memory for its listener");
    http->bound_to_evhttp = true;
    evconnlistener_set_error_cb(http->listener, on_accept_failed);
    int failed = pthread_create(&http->thread, NULL, run, http);
    if (failed)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "http: pthread_create: %s",
                        strerror(failed));
    http->started = true;
    log_info("http: listening on %s", http->bound.address);
    return XOP_OK;
}

void http_close(struct front *front) {
    struct http *http = front->http;
    uint64_t one = 1;
    if (!http)
        return;
    if (http->started) {
        if (write(http->stop_fd, &one, sizeof one) < 0)
            abort(); /* it would never end */
        pthread_join(http->thread, NULL);
    }
    if (http->listener && !http->bound_to_evhttp)
        evconnlistener_free(http->listener);
    if (http->evhttp)
        evhttp_free(http->evhttp);
    for (struct client *client = http->clients, *next; client; client = next) {
        next = client->next;
        bufferevent_decref(client->bev);
        free(client);
    }
    if (http->stop)
        event_free(http->stop);
    if (http->sweep)
        event_free(http->sweep);
    if (http->base)
        event_base_free(http->base);
    if (http->stop_fd >= 0)
        close(http->stop_fd);
    bind_close(&http->bound);
    free(http);
    front->http = NULL;
}
