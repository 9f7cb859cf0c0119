#include "file.h"

#include "literal.h"
#include "npy.h"
#include "safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define ENDING ".safetensors"

/* Puts the file's name in front of what is wrong with it. */
static enum xop_status name_it(const char *name, struct xop_error *error) {
    struct xop_error inner = *error;
    return xop_fail(error, inner.status, "%.120s: %.380s",
                    strcmp(name, "-") == 0 ? "standard input" : name, inner.message);
}

/* Splits FILE.safetensors or FILE.safetensors:NAME; false for any other name. */
static bool split(const char *name, char *path, size_t capacity, const char **tensor) {
    const char *at = strstr(name, ENDING);
    *tensor = NULL;
    if (!at)
        return false;
    at += strlen(ENDING);
    if (*at && *at != ':')
        return false;
    if (*at == ':' && at[1])
        *tensor = at + 1;
    size_t n = (size_t)(at - name);
    if (n >= capacity)
        return false;
    memcpy(path, name, n);
    path[n] = 0;
    return true;
}

enum xop_status file_read(const char *name, bool bf16, struct value *value, int *exit_status,
                          struct xop_error *error) {
    char path[4096];
    const char *tensor;
    bool standard = strcmp(name, "-") == 0, safetensors = split(name, path, sizeof path, &tensor);
    *exit_status = EX_DATAERR;
    if (literal_is(name))
        return literal_read(name, value, error);
    FILE *stream = standard ? stdin : fopen(safetensors ? path : name, "rbe");
    struct stat info;
    if (!stream || fstat(fileno(stream), &info) < 0 || S_ISDIR(info.st_mode)) {
        int failed = stream && S_ISDIR(info.st_mode) ? EISDIR : errno;
        if (stream && !standard)
            fclose(stream);
        *exit_status = EX_NOINPUT;
        return xop_fail(error, XOP_NOT_FOUND, "%.300s: %s", name, strerror(failed));
    }
    enum xop_status status = safetensors ? safetensors_read(stream, tensor, value, error)
                                         : npy_read(stream, bf16, value, error);
    if (!standard)
        fclose(stream);
    if (status == XOP_UNAVAILABLE)
        *exit_status = EX_IOERR;
    else if (status == XOP_RESOURCE_EXHAUSTED)
        *exit_status = EX_OSERR;
    return status == XOP_OK ? XOP_OK : name_it(name, error);
}

static enum xop_status write_to(FILE *stream, bool safetensors, const char *tensor_name,
                                const struct value *value, struct xop_error *error) {
    return safetensors ? safetensors_write(stream, tensor_name, value, error)
                       : npy_write(stream, value, error);
}

enum xop_status file_write(const char *name, const char *tensor_name, const struct value *value,
                           int *exit_status, struct xop_error *error) {
    char path[4096], beside[4200];
    const char *wanted;
    bool safetensors = split(name, path, sizeof path, &wanted);
    *exit_status = EX_IOERR;
    if (strcmp(name, "-") == 0)
        return write_to(stdout, false, tensor_name, value, error);
    if (!safetensors)
        snprintf(path, sizeof path, "%s", name);
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        /* A pipe or a device is written as it is. */
        FILE *stream = fopen(path, "wbe");
        enum xop_status status =
            stream ? write_to(stream, safetensors, wanted ? wanted : tensor_name, value, error)
                   : xop_fail(error, XOP_UNAVAILABLE, "%s", strerror(errno));
        if (stream && fclose(stream) != 0 && status == XOP_OK)
            status = xop_fail(error, XOP_UNAVAILABLE, "%s", strerror(errno));
        return status == XOP_OK ? XOP_OK : name_it(name, error);
    }
    snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    int fd = mkstemp(beside);
    mode_t mask = umask(0);
    umask(mask);
    FILE *stream = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!stream || fchmod(fd, 0666 & ~mask) < 0) {
        *exit_status = EX_CANTCREAT;
        xop_fail(error, XOP_UNAVAILABLE, "%.300s: cannot be created: %s", name, strerror(errno));
        if (fd >= 0)
            unlink(beside);
        return error->status;
    }
    enum xop_status status =
        write_to(stream, safetensors, wanted ? wanted : tensor_name, value, error);
    if (fclose(stream) != 0 && status == XOP_OK)
        status = xop_fail(error, XOP_UNAVAILABLE, "it cannot be written: %s", strerror(errno));
    if (status == XOP_OK && rename(beside, path) < 0)
        status = xop_fail(error, XOP_UNAVAILABLE, "it cannot be renamed: %s", strerror(errno));
    if (status != XOP_OK) {
        unlink(beside);
        return name_it(name, error);
    }
    return XOP_OK;
}
