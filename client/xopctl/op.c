/* The verb op. */
#include "op.h"

#include <string.h>
#include <sysexits.h>

static const struct {
    const char *name;
    int (*run)(struct session *session, int argc, char **argv);
} actions[] = {{"new", op_new}, {"build", op_build}, {"check", op_check}, {"install", op_install}};

static int run(struct session *session, int argc, char **argv) {
    if (argc < 2)
        return session_usage(&verb_op, "new, build, check or install is expected");
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(argv[1], actions[i].name) == 0)
            return actions[i].run(session, argc - 1, argv + 1);
    return session_usage(&verb_op, "there is no \"%s\": new, build, check or install", argv[1]);
}

const struct verb verb_op = {
    .name = "op",
    .usage = "new NAME [--c|--cuda] | build FILE | check FILE.so | install FILE.so",
    .summary = "write, build, check and install an operator of your own",
    .details =
        "  new NAME       write NAME.c (--c, the default) or NAME.cu (--cuda): a small operator "
        "that\n"
        "                 works, to be changed\n"
        "  build FILE     compile FILE.c or FILE.cu to FILE-cpu.so or FILE-cuda.so; CC and NVCC "
        "name\n"
        "                 the compilers, and what follows -- is for them\n"
        "    --output FILE.so  the library's name\n"
        "    --arch LIST       GPUs to compile for, as 80,90 (default: the one here, else any)\n"
        "  check FILE.so  load the library into an xopd of its own, and run all of verify on it: "
        "by\n"
        "                 its float64 reference, or another's; without one, backward against "
        "central\n"
        "                 differences, no number missing, the same bits alone and in company, "
        "nothing\n"
        "                 written outside outputs. Libraries for CUDA run under compute-sanitizer "
        "too,\n"
        "                 where it is installed\n"
        "    --reference NAME  judge by the reference of this operator of xopd's\n"
        "    --dtype D,...  --shape N,M  --seed N  --json   as of verify\n"
        "    --no-sanitizer    without compute-sanitizer\n"
        "  install FILE.so  put the library where a daemon loads it from when it starts\n"
        "    --directory DIR   operators.path of its configuration (default\n"
        "                      /usr/lib/xopd/operators)\n\n"
        "The exit status of check is 0 where all passed, 1 where one failed or nothing could be "
        "tried.\n",
    .run = run,
};
