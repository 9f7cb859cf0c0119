/*
 * What the device's sensors say, by NVML, which comes with the driver and is opened on first use:
 * without it, or where a device lacks a sensor, that is not known and nothing else is lost. A
 * thread of its own asks, for the driver may take its time to answer. Opened and closed by the
 * loop's thread.
 */
#ifndef WORKER_SENSORS_H
#define WORKER_SENSORS_H

#include "daemon/shared/seam.h"

#define SENSORS_LIBRARY "libnvidia-ml.so.1"
#define SENSORS_EVERY_MS 1000

struct sensors;

/* For the device at this place of the PCI bus. values: SEAM_SENSORS of them, as in the seam. NULL,
 * with a word in the log, where there is nothing to ask. */
struct sensors *sensors_open(const char *library, const char *pci, uint32_t every_ms,
                             _Atomic uint64_t *values);
/* NULL is allowed. One that hangs in the driver is left behind: its process is about to end. */
void sensors_close(struct sensors *sensors);

#endif
