#include "token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char blanks[] = " \t\r\n";

/* All of a file that fits, which a pipe may bring in pieces; -1 with errno. */
static ssize_t read_all(int fd, char *out, size_t capacity) {
    size_t bytes = 0;
    ssize_t got = 1;
    while (got > 0 && bytes < capacity) {
        do
            got = read(fd, out + bytes, capacity - bytes);
        while (got < 0 && errno == EINTR);
        bytes += got > 0 ? (size_t)got : 0;
    }
    return got < 0 ? -1 : (ssize_t)bytes;
}

enum xop_status token_read(const char *path, char token[static TOKEN_BYTES],
                           struct xop_error *error) {
    char text[TOKEN_BYTES + 64];
    struct stat info;
    enum xop_status status = XOP_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 || fstat(fd, &info) < 0 ? -1 : read_all(fd, text, sizeof text - 1);
    if (bytes < 0)
        status = xop_fail(error, XOP_UNAVAILABLE, "%.200s: %s", path, strerror(errno));
    else if (info.st_mode & S_IRWXO)
        status = xop_fail(error, XOP_PERMISSION_DENIED,
                          "%.200s can be read or changed by others: chmod o= it, and have the "
                          "token replaced if somebody may have seen it",
                          path);
    if (fd >= 0)
        close(fd);
    if (status != XOP_OK)
        return status;
    text[bytes] = 0;
    char *from = text + strspn(text, blanks);
    size_t length = strcspn(from, blanks);
    bool one = from[length + strspn(from + length, blanks)] == 0;
    if (length == 0 || length >= TOKEN_BYTES || !one || strlen(text) != (size_t)bytes)
        status = xop_fail(error, XOP_INVALID_ARGUMENT,
                          "%.200s: a token is expected, alone, of at most %d bytes", path,
                          TOKEN_BYTES - 1);
    else
        snprintf(token, TOKEN_BYTES, "%.*s", (int)length, from);
    explicit_bzero(text, sizeof text);
    return status;
}
