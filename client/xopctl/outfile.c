#include "outfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum xop_status io_failed(struct xop_error *error, const char *name, const char *what) {
    return xop_fail(error, XOP_UNAVAILABLE, "%.300s: cannot be %s: %s", name, what,
                    strerror(errno ? errno : EIO));
}

enum xop_status outfile_open(struct outfile *file, const char *name, struct xop_error *error) {
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    memset(file, 0, sizeof *file);
    size_t length = strlen(name);
    if (length >= sizeof file->name)
        return xop_fail(error, XOP_INVALID_ARGUMENT, "the file's name is too long");
    memcpy(file->name, name, length + 1);
    bool is_there = stat(name, &info) == 0;
    if (is_there && S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return io_failed(error, name, "created");
    }
    if (is_there && !S_ISREG(info.st_mode)) { /* a pipe or a device is written as it is */
        file->stream = fopen(name, "wbe");
        return file->stream ? XOP_OK : io_failed(error, name, "created");
    }
    snprintf(file->beside, sizeof file->beside, "%s.XXXXXX", name);
    int fd = mkstemp(file->beside);
    if (fd < 0) {
        *file->beside = 0;
        return io_failed(error, name, "created");
    }
    file->stream = fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "wb") : NULL;
    if (file->stream)
        return XOP_OK;
    io_failed(error, name, "created");
    close(fd);
    outfile_close(file);
    return error->status;
}

void outfile_close(struct outfile *file) {
    if (file->stream)
        fclose(file->stream);
    if (*file->beside)
        unlink(file->beside);
    file->stream = NULL;
    *file->beside = 0;
}

enum xop_status outfile_finish(struct outfile *file, struct xop_error *error) {
    errno = 0;
    bool failed = ferror(file->stream) != 0;
    failed |= fclose(file->stream) != 0;
    file->stream = NULL;
    if (failed)
        return io_failed(error, file->name, "written");
    if (*file->beside && rename(file->beside, file->name) < 0)
        return io_failed(error, file->name, "renamed");
    *file->beside = 0;
    return XOP_OK;
}
