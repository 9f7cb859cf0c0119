/* Any bytes as a file of tokens: it is read, and then knows what it said, or refused with a
 * sentence. */
#include "daemon/front/policy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct policy policy;
    static int fd = -1;
    static char path[64];
    struct xop_error error = {XOP_OK, ""};
    if (fd < 0) {
        fd = memfd_create("tokens", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fchmod(fd, 0600) < 0 || ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        return 0;
    memset(&policy, 0, sizeof policy);
    if (policy_read_tokens(&policy, path, &error) != XOP_OK) {
        if (strlen(error.message) == 0)
            abort();
        return 0;
    }
    for (uint32_t i = 0; i < policy.ntokens; i++)
        if (!policy_is_name(policy.tokens[i].name) ||
            policy_token_name(&policy, policy.tokens[i].digest) != policy.tokens[i].name)
            abort();
    return 0;
}
