#include "file.h"

#include "literal.h"
#include "npy.h"
#include "outfile.h"
#include "safetensors.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

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
    char path[4096];
    const char *wanted;
    struct outfile out;
    bool safetensors = split(name, path, sizeof path, &wanted);
    *exit_status = EX_IOERR;
    if (strcmp(name, "-") == 0)
        return write_to(stdout, false, tensor_name, value, error);
    if (outfile_open(&out, safetensors ? path : name, error) != XOP_OK) {
        *exit_status = EX_CANTCREAT;
        return error->status;
    }
    enum xop_status status =
        write_to(out.stream, safetensors, wanted ? wanted : tensor_name, value, error);
    status = status == XOP_OK ? outfile_finish(&out, error) : name_it(name, error);
    outfile_close(&out);
    return status;
}
