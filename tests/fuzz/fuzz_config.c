/* Any bytes as a configuration file: it is read, or refused with a sentence. */
#include "daemon/config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    struct config config;
    struct xop_error error = {XOP_OK, ""};
    if (fd < 0) {
        fd = memfd_create("config", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        return 0;
    config_defaults(&config);
    if (config_read(&config, path, &error) != XOP_OK) {
        if (strlen(error.message) == 0)
            abort();
        return 0;
    }
    (void)config_finish(&config, &error);
    return 0;
}
