#include "parent.h"

#include "daemon/front/front.h"
#include "daemon/shared/channel.h"
#include "daemon/shared/seam.h"
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

/* Above every number that a worker's descriptors get. */
#define LIFTED (SEAM_FD_LANES + (int)SEAM_MAX_LANES)

/* What it takes to end, beside the drain: leave of connections, and twice a wait for workers. */
#define STOP_MS 15000u

struct child {
    pid_t pid; /* 0: none */
    uint64_t generation;
    int keeper; /* socket: see daemon/shared/keeper.h; -1: closed */
};

struct parent {
    struct reload reload; /* and the configuration in force */
    int executable;       /* of this very file, so that an upgrade under our feet changes nothing */
    int signals;
    int front; /* control socket */
    pid_t front_pid;
    struct child workers[PARENT_MAX_WORKERS];
    struct keeper keeper;
    bool ready;       /* the service manager knows */
    int terminations; /* SIGTERM or SIGINT so far */
    bool ended;
    int exit_status;
};

static void tell_front(struct parent *parent, const struct parent_message *message) {
    struct xop_error error;
    if (channel_send(parent->front, message, sizeof *message, NULL, 0, NULL, 0, &error) != XOP_OK)
        log_debug("front does not listen: %s", error.message);
}

/* ---- Starting a worker ---- */

/* In the child: moves the descriptors to the numbers a worker expects. They may overlap with these
 * numbers, so they are lifted above them first. */
static bool place_descriptors(int *fds, uint32_t nfds) {
    for (uint32_t i = 0; i < nfds; i++) {
        int high = fcntl(fds[i], F_DUPFD_CLOEXEC, LIFTED);
        if (high < 0)
            return false;
        fds[i] = high;
    }
    for (uint32_t i = 0; i < nfds; i++)
        if (dup2(fds[i], SEAM_FD_CONTROL + (int)i) < 0)
            return false;
    return true;
}

static void run_worker(const struct parent *parent, int *fds, uint32_t nfds) {
    char *const argv[] = {"xopd", "--worker", NULL};
    extern char **environ;
    sigset_t none;
    sigemptyset(&none);
    int executable = fcntl(parent->executable, F_DUPFD_CLOEXEC, LIFTED);
    if (executable >= 0 && place_descriptors(fds, nfds) &&
        sigprocmask(SIG_SETMASK, &none, NULL) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
        close_range((unsigned)(SEAM_FD_CONTROL + (int)nfds), ~0u, CLOSE_RANGE_CLOEXEC) == 0)
        fexecve(executable, argv, environ);
    log_error("cannot start a worker: %s", strerror(errno));
    _exit(EX_OSERR);
}

/* The front's descriptors with the worker's end of a keeper's socket among them, in the order of
 * enum seam_descriptor. */
static void insert_keeper(const int *fds, uint32_t nfds, int keeper, int *all) {
    uint32_t at = SEAM_FD_KEEPER - SEAM_FD_CONTROL;
    memcpy(all, fds, at * sizeof *fds);
    all[at] = keeper;
    memcpy(all + at + 1, fds + at, (nfds - at) * sizeof *fds);
}

static void on_start(struct parent *parent, const struct parent_message *message, int *fds,
                     uint32_t nfds) {
    struct parent_message answer = {
        .type = PARENT_STARTED, .value = -1, .generation = message->generation};
    struct child *child = NULL;
    struct xop_error error;
    int keeper[2] = {-1, -1}, all[CHANNEL_FDS + 1];
    for (uint32_t i = 0; i < PARENT_MAX_WORKERS && !child; i++)
        if (parent->workers[i].pid == 0)
            child = &parent->workers[i];
    pid_t pid = -1;
    if (!child) {
        snprintf(answer.text, sizeof answer.text, "more than %u workers", PARENT_MAX_WORKERS);
    } else if (channel_pair(keeper, false, &error) != XOP_OK) {
        snprintf(answer.text, sizeof answer.text, "%.200s", error.message);
    } else if (fcntl(keeper[0], F_SETFL, O_NONBLOCK) < 0) {
        snprintf(answer.text, sizeof answer.text, "fcntl: %s", strerror(errno));
        close(keeper[0]);
    } else if ((pid = fork()) == 0) {
        insert_keeper(fds, nfds, keeper[1], all);
        run_worker(parent, all, nfds + 1);
    } else if (pid < 0) {
        snprintf(answer.text, sizeof answer.text, "fork: %s", strerror(errno));
        close(keeper[0]);
    } else {
        *child = (struct child){pid, message->generation, keeper[0]};
        answer.value = pid;
    }
    if (keeper[1] >= 0)
        close(keeper[1]);
    tell_front(parent, &answer);
}

static void close_keeper(struct child *child) {
    if (child->keeper >= 0)
        close(child->keeper);
    child->keeper = -1;
}

static void on_kill(struct parent *parent, const struct parent_message *message, int *fds,
                    uint32_t nfds) {
    (void)fds, (void)nfds;
    for (uint32_t i = 0; i < PARENT_MAX_WORKERS; i++)
        if (parent->workers[i].pid > 0 && parent->workers[i].generation == message->generation)
            kill(parent->workers[i].pid, SIGKILL);
}

static void on_status(struct parent *parent, const struct parent_message *message, int *fds,
                      uint32_t nfds) {
    char text[sizeof message->text];
    (void)fds, (void)nfds;
    snprintf(text, sizeof text, "%s", message->text);
    for (char *c = text; *c; c++) /* a line of its own would be a message of its own */
        if ((unsigned char)*c < ' ')
            *c = ' ';
    if (sd_notifyf(0, "%sSTATUS=%s", parent->ready ? "" : "READY=1\n", text) < 0)
        log_warn("the service manager cannot be told: %s", text);
    parent->ready = true;
}

/* What systemd wants to hear about a reload, before and after: it waits for the latter. */
static void notify_reload(const struct parent *parent, bool begins) {
    struct timespec now;
    if (!parent->ready)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (begins)
        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                   (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    else
        sd_notify(0, "READY=1");
}

static void on_alive(struct parent *parent, const struct parent_message *message, int *fds,
                     uint32_t nfds) {
    (void)parent, (void)message, (void)fds, (void)nfds;
    sd_notify(0, "WATCHDOG=1");
}

static void on_reloaded(struct parent *parent, const struct parent_message *message, int *fds,
                        uint32_t nfds) {
    (void)fds, (void)nfds;
    if (!reload_end(&parent->reload, parent->front, message->text))
        notify_reload(parent, false);
}

static const struct {
    void (*handle)(struct parent *, const struct parent_message *, int *fds, uint32_t nfds);
    uint32_t min_fds, max_fds;
} from_front[PARENT_MESSAGE_TYPES] = {
    [PARENT_START] = {on_start, SEAM_FD_LANES - SEAM_FD_CONTROL, CHANNEL_FDS},
    [PARENT_KILL] = {on_kill, 0, 0},
    [PARENT_STATUS] = {on_status, 0, 0},
    [PARENT_ALIVE] = {on_alive, 0, 0},
    [PARENT_RELOADED] = {on_reloaded, 0, 0},
};

static void receive_from_front(struct parent *parent) {
    unsigned char packet[CHANNEL_BYTES];
    struct parent_message message;
    struct xop_error error;
    int fds[CHANNEL_FDS];
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    if (channel_receive(parent->front, packet, &bytes, fds, CHANNEL_FDS, &nfds, &would_block,
                        &error) != XOP_OK)
        return;
    if (bytes == sizeof message) {
        memcpy(&message, packet, sizeof message);
        message.text[sizeof message.text - 1] = 0;
        if (message.type < PARENT_MESSAGE_TYPES && from_front[message.type].handle &&
            nfds >= from_front[message.type].min_fds && nfds <= from_front[message.type].max_fds)
            from_front[message.type].handle(parent, &message, fds, nfds);
        else
            log_error("message %u with %u descriptors from the front is not allowed", message.type,
                      nfds);
    }
    for (uint32_t i = 0; i < nfds; i++)
        close(fds[i]);
}

/* ---- Ending ---- */

static void reap(struct parent *parent) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == parent->front_pid) {
            parent->front_pid = 0;
            parent->ended = true;
            parent->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
            if (WIFSIGNALED(status))
                log_error("the front was ended by signal %d", WTERMSIG(status));
            continue;
        }
        for (uint32_t i = 0; i < PARENT_MAX_WORKERS; i++) {
            struct child *child = &parent->workers[i];
            if (child->pid != pid)
                continue;
            struct parent_message message = {
                .type = PARENT_REAPED, .value = status, .generation = child->generation};
            child->pid = 0;
            close_keeper(child);
            tell_front(parent, &message);
        }
    }
}

static void terminate(struct parent *parent) {
    struct parent_message message = {.type = PARENT_TERMINATE, .value = parent->terminations > 0};
    parent->terminations++;
    /* However long a drain is allowed to take, the service manager has to wait for it. */
    sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64,
               (parent->reload.config->drain_timeout_ms + STOP_MS) * 1000);
    tell_front(parent, &message);
    if (parent->terminations > 2 && parent->front_pid > 0)
        kill(parent->front_pid, SIGKILL);
}

static void hang_up(struct parent *parent) {
    if (parent->terminations > 0)
        return;
    notify_reload(parent, true);
    if (!reload_begin(&parent->reload, parent->front))
        notify_reload(parent, false);
}

static void on_signal(struct parent *parent) {
    struct signalfd_siginfo info;
    while (read(parent->signals, &info, sizeof info) == sizeof info) {
        switch (info.ssi_signo) {
        case SIGCHLD: reap(parent); break;
        case SIGTERM:
        case SIGINT: terminate(parent); break;
        case SIGHUP: hang_up(parent); break;
        default: log_info("signal %u is ignored", info.ssi_signo); break;
        }
    }
}

/* Workers exit by themselves when the front is gone; the device is theirs until they are reaped. */
static void end_workers(struct parent *parent) {
    for (int tries = 0; tries < 2; tries++) {
        bool any = false;
        for (uint32_t i = 0; i < PARENT_MAX_WORKERS; i++) {
            if (parent->workers[i].pid <= 0)
                continue;
            any = true;
            if (tries > 0)
                kill(parent->workers[i].pid, SIGKILL);
        }
        for (int left = 50; any && left > 0; left--) {
            struct pollfd ready = {parent->signals, POLLIN, 0};
            if (poll(&ready, 1, 100) > 0)
                on_signal(parent);
            any = false;
            for (uint32_t i = 0; i < PARENT_MAX_WORKERS; i++)
                any |= parent->workers[i].pid > 0;
        }
    }
}

/* ---- Starting ---- */

static bool open_signals(struct parent *parent) {
    static const int taken[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        sigaddset(&set, taken[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return false;
    parent->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return parent->signals >= 0;
}

/* Every connection takes a descriptor, and so does what a worker is started with. */
static void raise_limits(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log_warn("the limit of open files cannot be raised: %s", strerror(errno));
}

static bool start_front(struct parent *parent, const struct passed *passed,
                        struct xop_error *error) {
    int sockets[2];
    uint64_t watchdog_us = 0;
    /* And takes the variables away, which are meant for this process alone. */
    int watched = sd_watchdog_enabled(1, &watchdog_us);
    if (watched < 0)
        log_warn("the watchdog is not served: WATCHDOG_USEC: %s", strerror(-watched));
    if (channel_pair(sockets, true, error) != XOP_OK)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        /* No exec: the front needs nothing but its half of the socket and the configuration. It
         * notices the parent's end by the end of that socket. */
        close(sockets[0]);
        close(parent->executable);
        close(parent->signals);
        const struct front_start start = {.config = parent->reload.config,
                                          .passed = passed,
                                          .parent = sockets[1],
                                          .watchdog_us = watched > 0 ? watchdog_us : 0};
        _exit(front_main(&start));
    }
    close(sockets[1]);
    parent->front = sockets[0];
    parent->front_pid = pid;
    if (pid < 0)
        xop_fail(error, XOP_INTERNAL, "fork: %s", strerror(errno));
    return pid > 0;
}

int parent_main(struct config *config, reload_reader *read, const void *user) {
    struct parent parent = {.reload = {.config = config, .read = read, .user = user},
                            .front = -1,
                            .exit_status = EX_OSERR};
    struct xop_error error;
    struct passed passed;
    parent.executable = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (parent.executable < 0 || !open_signals(&parent)) {
        log_error("cannot start: %s", strerror(errno));
        return EX_OSERR;
    }
    if (passed_take(&passed, &error) != XOP_OK) {
        log_error("cannot start: %s", error.message);
        return EX_UNAVAILABLE;
    }
    raise_limits();
    keeper_open(&parent.keeper);
    if (!start_front(&parent, &passed, &error)) {
        log_error("cannot start the front: %s", error.message);
        return EX_OSERR;
    }
    passed_close(&passed); /* the front's now */
    while (!parent.ended) {
        struct pollfd ready[2 + PARENT_MAX_WORKERS] = {{parent.signals, POLLIN, 0},
                                                       {parent.front, POLLIN, 0}};
        for (uint32_t i = 0; i < PARENT_MAX_WORKERS; i++) {
            const struct child *child = &parent.workers[i];
            ready[2 + i] = (struct pollfd){child->pid > 0 ? child->keeper : -1, POLLIN, 0};
        }
        if (poll(ready, sizeof ready / sizeof *ready, -1) < 0 && errno != EINTR)
            break;
        for (uint32_t i = 0; i < PARENT_MAX_WORKERS; i++)
            if (ready[2 + i].revents && !keeper_serve(&parent.keeper, parent.workers[i].keeper))
                close_keeper(&parent.workers[i]);
        if (ready[0].revents)
            on_signal(&parent);
        if (ready[1].revents & POLLIN)
            receive_from_front(&parent);
        else if (ready[1].revents)
            /* Closed, and its end is about to be reported by SIGCHLD. */
            poll(ready, 1, -1);
    }
    end_workers(&parent);
    keeper_close(&parent.keeper);
    close(parent.front);
    close(parent.signals);
    close(parent.executable);
    return parent.exit_status;
}
