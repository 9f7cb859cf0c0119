#include "worker.h"

#include "daemon/shared/channel.h"
#include "device.h"
#include "loop.h"
#include "operators.h"
#include "outbox.h"
#include "sensors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

/* ---- What the front is told ---- */

static void send_fault(struct worker *worker, enum xop_status status, const char *message) {
    struct seam_control head = {SEAM_FAULT, sizeof(struct seam_fault)};
    struct seam_fault fault = {.status = (uint32_t)status};
    struct xop_error error;
    snprintf(fault.message, sizeof fault.message, "%s", message);
    if (channel_send(worker->control, &head, sizeof head, &fault, sizeof fault, NULL, 0, &error) !=
        XOP_OK)
        log_error("%s", message);
}

/* A memfd that holds text, sealed; -1 where that fails. */
static int share_text(const char *text, size_t bytes) {
    int fd = memfd_create("xopd-catalogue", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t at = 0;
    while (fd >= 0 && at < bytes) {
        ssize_t n = write(fd, text + at, bytes - at);
        if (n <= 0 && errno != EINTR) {
            close(fd);
            return -1;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        log_warn("the catalogue cannot be sealed: %s", strerror(errno));
    return fd;
}

static enum xop_status send_ready(struct worker *worker, struct xop_error *error) {
    struct seam_control head = {SEAM_READY, sizeof(struct seam_ready)};
    struct seam_ready ready = {.operators = worker->nops,
                               .apart = worker->api->apart,
                               .memory_total = worker->info.memory_total};
    char *catalogue = operators_describe(worker);
    int fd = catalogue ? share_text(catalogue, strlen(catalogue)) : -1;
    enum xop_status status;
    snprintf(ready.backend, sizeof ready.backend, "%s", worker->info.backend);
    snprintf(ready.device, sizeof ready.device, "%s", worker->info.device);
    snprintf(ready.runtime, sizeof ready.runtime, "%s", worker->info.runtime);
    snprintf(ready.fallback_reason, sizeof ready.fallback_reason, "%s", worker->fallback_reason);
    if (fd < 0) {
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "no memory for the catalogue");
    } else {
        ready.catalogue_bytes = (uint32_t)strlen(catalogue);
        status =
            channel_send(worker->control, &head, sizeof head, &ready, sizeof ready, &fd, 1, error);
        close(fd);
    }
    free(catalogue);
    return status;
}

/* ---- Start ---- */

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define SANITIZED 1 /* their leak check has to look into the process */
#else
#define SANITIZED 0
#endif

static bool is_text(const char *bytes, size_t capacity) { return memchr(bytes, 0, capacity); }

static enum xop_status receive_setup(struct worker *worker, struct xop_error *error) {
    unsigned char packet[CHANNEL_BYTES];
    struct seam_control head;
    struct seam_setup *setup = &worker->setup;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    if (channel_receive(worker->control, packet, &bytes, NULL, 0, &nfds, &would_block, error) !=
        XOP_OK)
        return error->status;
    if (bytes != sizeof head + sizeof *setup)
        return xop_fail(error, XOP_INTERNAL, "there was no setup: a worker is started by xopd");
    memcpy(&head, packet, sizeof head);
    memcpy(setup, packet + sizeof head, sizeof *setup);
    if (head.type != SEAM_SETUP || setup->abi != SEAM_ABI || setup->lanes == 0 ||
        setup->lanes > SEAM_MAX_LANES || setup->records == 0 ||
        (setup->records & (setup->records - 1)) != 0 || setup->batch_max == 0 ||
        setup->inbox_bytes == 0 || setup->outbox_bytes == 0 ||
        !is_text(setup->backend, sizeof setup->backend) ||
        !is_text(setup->backend_path, sizeof setup->backend_path) ||
        !is_text(setup->operators_path, sizeof setup->operators_path))
        return xop_fail(error, XOP_INTERNAL, "the setup is of another version");
    return XOP_OK;
}

static void *map(int fd, size_t bytes, int protection, const char *what, struct xop_error *error) {
    struct stat info;
    if (fstat(fd, &info) < 0 || (uint64_t)info.st_size < bytes) {
        xop_fail(error, XOP_INTERNAL, "the %s is smaller than its setup says", what);
        return NULL;
    }
    void *base = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED)
        return base;
    xop_fail(error, XOP_RESOURCE_EXHAUSTED, "cannot map the %s: %s", what, strerror(errno));
    return NULL;
}

static enum xop_status map_seam(struct worker *worker, struct xop_error *error) {
    const struct seam_setup *setup = &worker->setup;
    void *seam = map(SEAM_FD_SEAM, seam_bytes(setup->lanes, setup->records), PROT_READ | PROT_WRITE,
                     "seam", error);
    void *inbox = seam ? map(SEAM_FD_INBOX, setup->inbox_bytes, PROT_READ, "inbox", error) : NULL;
    void *outbox = NULL;
    if (inbox)
        outbox = map(SEAM_FD_OUTBOX, setup->outbox_bytes, PROT_READ | PROT_WRITE, "outbox", error);
    if (!outbox)
        return error->status;
    worker->header = seam;
    worker->inbox = inbox;
    for (uint32_t i = 0; i < setup->lanes; i++) {
        seam_view(seam, i, setup->records, &worker->lanes[i]);
        worker->lane_fds[i] = SEAM_FD_LANES + (int)i;
    }
    return outbox_open(&worker->outbox, outbox, setup->outbox_bytes, error);
}

struct opening {
    struct worker *worker;
    enum xop_status status;
    struct xop_error error;
    int done; /* eventfd */
};

static void *open_device(void *arg) {
    struct opening *opening = arg;
    uint64_t one = 1;
    opening->status = device_open(opening->worker, &opening->error);
    if (opening->status == XOP_OK) {
        opening->status =
            operators_add(opening->worker, opening->worker->api->library(), &opening->error);
        operators_load(opening->worker);
    }
    if (write(opening->done, &one, sizeof one) < 0)
        log_error("eventfd: %s", strerror(errno));
    return NULL;
}

/* Opens the device on a thread of its own, which may take long; meanwhile the heart beats, and the
 * front's end is noticed. */
static enum xop_status open_while_beating(struct worker *worker, struct xop_error *error) {
    struct opening opening = {.worker = worker, .done = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    if (opening.done < 0 || pthread_create(&thread, NULL, open_device, &opening) != 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "cannot start a thread");
    struct pollfd ready[] = {{opening.done, POLLIN, 0}, {worker->control, POLLIN, 0}};
    while (!(ready[0].revents & POLLIN)) {
        atomic_store(&worker->header->heartbeat_ns, worker_now());
        if (poll(ready, 2, 100) < 0 && errno != EINTR)
            break;
        if (ready[1].revents)
            _exit(0); /* the front stops or is gone; the other thread may hang in a driver */
    }
    pthread_join(thread, NULL);
    close(opening.done);
    *error = opening.error;
    return opening.status;
}

static void settle_process(void) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    /* The front decides when a worker ends; a Ctrl-C in a terminal reaches every process of it. */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    prctl(PR_SET_NAME, "xopd-worker");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!SANITIZED)
        prctl(PR_SET_DUMPABLE, 0); /* its memory holds what clients sent */
}

int worker_main(void) {
    static struct worker worker; /* large, and one a process */
    struct xop_error error;
    settle_process();
    log_init("worker", LOG_LEVEL_INFO);
    worker.control = SEAM_FD_CONTROL;
    worker.doorbell = SEAM_FD_DOORBELL;
    worker.keeper = SEAM_FD_KEEPER;
    if (receive_setup(&worker, &error) != XOP_OK) {
        send_fault(&worker, XOP_UNAVAILABLE, error.message);
        return EX_UNAVAILABLE;
    }
    if (fcntl(worker.control, F_SETFL, O_NONBLOCK) < 0)
        log_warn("fcntl: %s", strerror(errno));
    log_set_level((enum log_level)worker.setup.tuning.log_level);
    if (map_seam(&worker, &error) != XOP_OK || open_while_beating(&worker, &error) != XOP_OK ||
        loop_open(&worker, &error) != XOP_OK || send_ready(&worker, &error) != XOP_OK) {
        send_fault(&worker, XOP_UNAVAILABLE, error.message);
        /* The backend may have threads that do not end; nothing here needs an orderly exit. */
        _exit(EX_UNAVAILABLE);
    }
    struct sensors *sensors =
        sensors_open(SENSORS_LIBRARY, worker.info.pci, SENSORS_EVERY_MS, worker.header->sensors);
    if (loop_run(&worker, &error) != XOP_OK) {
        send_fault(&worker, XOP_DEVICE_FAULT, error.message);
        _exit(EX_SOFTWARE);
    }
    sensors_close(sensors);
    worker.api->close(worker.backend);
    loop_close(&worker);
    outbox_close(&worker.outbox);
    return 0;
}
