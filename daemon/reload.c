#include "reload.h"

#include "daemon/shared/channel.h"
#include "parent.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void note_change(const char *change, bool applied) {
    if (applied)
        log_info("changed: %s", change);
    else
        log_warn("this needs a restart: %s", change);
}

/* It is larger than a packet. The front is this very program and forked from here, so that it reads
 * the struct as it is. */
static enum xop_status send_config(int front, const struct config *config,
                                   struct xop_error *error) {
    const struct parent_message message = {.type = PARENT_RELOAD};
    int fd = memfd_create("xopd-config", MFD_CLOEXEC);
    if (fd < 0)
        return xop_fail(error, XOP_RESOURCE_EXHAUSTED, "memfd_create: %s", strerror(errno));
    ssize_t written = pwrite(fd, config, sizeof *config, 0);
    enum xop_status status = XOP_OK;
    if (written != (ssize_t)sizeof *config)
        status = xop_fail(error, XOP_RESOURCE_EXHAUSTED, "memfd: %s",
                          written < 0 ? strerror(errno) : "it is cut short");
    else
        status = channel_send(front, &message, sizeof message, NULL, 0, &fd, 1, error);
    close(fd);
    return status;
}

bool reload_begin(struct reload *reload, int front) {
    struct config merged = *reload->config;
    struct xop_error error;
    if (reload->waiting) {
        reload->again = true;
        return true;
    }
    if (reload->read(reload->user, &reload->fresh, &error) != XOP_OK)
        goto refused;
    /* What changes has to go with what cannot. */
    config_apply(&merged, &reload->fresh, NULL);
    if (config_finish(&merged, &error) != XOP_OK || send_config(front, &merged, &error) != XOP_OK)
        goto refused;
    reload->waiting = true;
    return true;
refused:
    log_error("the configuration stays as it was: %s", error.message);
    return false;
}

bool reload_end(struct reload *reload, int front, const char *reason) {
    bool again = reload->again;
    if (!reload->waiting)
        return false;
    reload->waiting = reload->again = false;
    if (*reason) {
        log_error("the configuration stays as it was: %s", reason);
    } else {
        /* First the level, which decides whether the rest is said. */
        log_set_level(reload->fresh.log_level);
        config_apply(reload->config, &reload->fresh, note_change);
        log_info("the configuration was read again");
    }
    return again && reload_begin(reload, front);
}
