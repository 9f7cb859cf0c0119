/*
 * The worker role: owns a device through a backend and runs operators on it. It never sees the
 * network: requests come as records over the seam, are copied, checked, grouped and submitted, and
 * their results are published when the backend has finished them.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

/* `xopd --worker`: descriptors as enum seam_descriptor says. Returns the exit status. */
int worker_main(void);

#endif
