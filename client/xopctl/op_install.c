/* op install: a library that loads takes its place in the directory of operators, whole. */
#include "op.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define DEFAULT_DIRECTORY "/usr/lib/xopd/operators"

static bool copy(int from, int to) {
    char buffer[65536];
    ssize_t n;
    while ((n = read(from, buffer, sizeof buffer)) != 0) {
        for (ssize_t done = 0, m; done < n; done += m)
            if ((m = write(to, buffer + done, (size_t)(n - done))) < 0)
                return false;
        if (n < 0)
            return false;
    }
    return fsync(to) == 0;
}

/* Beside its place, then renamed: a daemon that starts meanwhile finds the old one or the new one.
 */
static enum xop_status put(const char *file, const char *directory, const char *place,
                           struct xop_error *error) {
    char beside[PATH_MAX + 16];
    enum xop_status status = XOP_OK;
    snprintf(beside, sizeof beside, "%s.XXXXXX", place);
    int from = open(file, O_RDONLY | O_CLOEXEC), to = from < 0 ? -1 : mkstemp(beside);
    if (from < 0)
        return xop_fail(error, XOP_NOT_FOUND, "%s: %s", file, strerror(errno));
    if (to < 0)
        status = xop_fail(error, errno == EACCES ? XOP_PERMISSION_DENIED : XOP_UNAVAILABLE,
                          "nothing can be created in %s: %s%s", directory, strerror(errno),
                          errno == ENOENT ? " (create it, writable for administrators alone)" : "");
    else if (!copy(from, to) || fchmod(to, 0644) < 0)
        status = xop_fail(error, XOP_UNAVAILABLE, "%s: %s", beside, strerror(errno));
    close(from);
    if (to >= 0)
        close(to);
    /* What was copied is what is judged, whatever becomes of the file meanwhile. */
    struct op_facts facts;
    if (status == XOP_OK)
        status = op_probe(beside, &facts, error);
    if (status == XOP_OK && rename(beside, place) < 0)
        status = xop_fail(error, XOP_UNAVAILABLE, "%s: %s", place, strerror(errno));
    if (status != XOP_OK && to >= 0)
        unlink(beside);
    return status;
}

static enum xop_status check_directory(const char *directory, struct xop_error *error) {
    struct stat info;
    if (stat(directory, &info) < 0)
        return xop_fail(error, XOP_NOT_FOUND,
                        "%s: %s (create it, writable for administrators alone)", directory,
                        strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return xop_fail(error, XOP_INVALID_ARGUMENT, "%s is no directory", directory);
    if (info.st_mode & S_IWOTH)
        return xop_fail(
            error, XOP_PERMISSION_DENIED,
            "everybody may write %s, and whoever may runs code in the daemon: chmod o-w",
            directory);
    return XOP_OK;
}

int op_install(struct session *session, int argc, char **argv) {
    static const struct option options[] = {{"directory", required_argument, NULL, 'd'},
                                            {NULL, 0, NULL, 0}};
    const char *directory = DEFAULT_DIRECTORY;
    char place[PATH_MAX];
    struct op_facts facts;
    struct xop_error error;
    int c;
    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 'd')
            return session_usage(&verb_op, "wrong usage");
        directory = optarg;
    }
    if (optind + 1 != argc)
        return session_usage(&verb_op, "install takes one library");
    const char *file = argv[optind], *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    size_t length = strlen(base);
    if (length < 4 || strcmp(base + length - 3, ".so") != 0)
        return session_usage(&verb_op, "%s: a daemon loads files whose names end in .so", file);
    if ((size_t)snprintf(place, sizeof place, "%s/%s", directory, base) >= sizeof place)
        return session_usage(&verb_op, "the library's path is too long");
    if (op_probe(file, &facts, &error) != XOP_OK)
        return session_fail(session, EX_DATAERR, error.status, "%s is refused: %s", file,
                            error.message);
    if (check_directory(directory, &error) != XOP_OK ||
        put(file, directory, place, &error) != XOP_OK)
        return session_fail(session, EX_CANTCREAT, error.status, "%s", error.message);
    printf("%s is installed. A daemon whose operators.path is %s loads it when it starts.\n", place,
           directory);
    return 0;
}
