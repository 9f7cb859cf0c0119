/* What this user may: devices' files, and how much memory may be locked. */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

void doctor_probe_limits(const struct doctor_host *host, struct doctor_limits *limits) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};
    struct rlimit memlock;
    memset(limits, 0, sizeof *limits);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        char path[400];
        snprintf(path, sizeof path, "%.300s%s", host->root, nodes[i]);
        if (host->may_use(path) == 0 || errno == ENOENT)
            continue;
        limits->denied = errno;
        snprintf(limits->node, sizeof limits->node, "%s", nodes[i]);
        break;
    }
    limits->memlock = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY)
        limits->memlock = memlock.rlim_cur;
}
