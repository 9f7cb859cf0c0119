#include "reconfigure.h"

#include "admit.h"
#include "daemon/parent.h"
#include "daemon/shared/channel.h"
#include "thread.h"
#include "tls.h"
#include "workers.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static enum xop_status take_over(struct front *front, int fd, struct xop_error *error) {
    struct config fresh;
    if (pread(fd, &fresh, sizeof fresh, 0) != (ssize_t)sizeof fresh)
        return xop_fail(error, XOP_INTERNAL, "the front cannot read it: %s", strerror(errno));
    if (front->tls && tls_reload(front->tls, &fresh, error) != XOP_OK)
        return error->status;
    if (admit_load(front, &fresh.policy, error) != XOP_OK)
        return error->status;
    pthread_mutex_lock(&front->lock);
    config_apply(front->config, &fresh, NULL);
    pthread_mutex_unlock(&front->lock);
    log_set_level(front->config->log_level);
    for (uint32_t i = 0; i < front->nthreads; i++)
        if (!thread_post(&front->threads[i], THREAD_CONFIG, NULL))
            log_error("out of memory: an I/O thread keeps its configuration until the next reload");
    workers_reconfigure(front);
    return XOP_OK;
}

void reconfigure(struct front *front, int fd) {
    struct parent_message answer = {.type = PARENT_RELOADED};
    struct xop_error error;
    if (take_over(front, fd, &error) != XOP_OK)
        snprintf(answer.text, sizeof answer.text, "%.255s", error.message);
    if (channel_send(front->parent, &answer, sizeof answer, NULL, 0, NULL, 0, &error) != XOP_OK)
        log_error("cannot reach the parent: %s", error.message);
}
