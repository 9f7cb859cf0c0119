/* What this user may: devices' files, how much memory may be locked, and in which pages. */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

void doctor_probe_limits(const struct doctor_host *host, struct doctor_limits *limits) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};
    struct rlimit memlock;
    char modes[100];
    const char *chosen;
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
    /* The choice in effect stands in brackets. */
    if (doctor_read(host, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", modes,
                    sizeof modes) &&
        (chosen = strchr(modes, '[')))
        snprintf(limits->huge, sizeof limits->huge, "%.*s", (int)strcspn(chosen + 1, "]"),
                 chosen + 1);
    limits->memlock = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY)
        limits->memlock = memlock.rlim_cur;
}
