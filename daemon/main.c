#include "config.h"
#include "daemon/worker/worker.h"
#include "parent.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#ifndef XOP_VERSION
#define XOP_VERSION "unknown"
#endif

enum action { RUN, CHECK, HELP, HELP_CONFIG, VERSION };

/* Options that set a configuration key; the others are actions. */
static const struct {
    struct option option;
    const char *section, *key, *fixed; /* fixed: the value of an option without argument */
    enum action action;
    const char *argument, *doc;
} options[] = {
    {{"config", required_argument, NULL, 'c'},
     NULL,
     NULL,
     NULL,
     RUN,
     "FILE",
     "read this configuration file"},
    {{"listen", required_argument, NULL, 0},
     "server",
     "listen",
     NULL,
     RUN,
     "ADDRESS",
     "unix:/path, unix:@abstract, tls:host:port or tcp:host:port; repeatable"},
    {{"insecure-tcp", no_argument, NULL, 0},
     "server",
     "insecure_tcp",
     "yes",
     RUN,
     "",
     "allow TCP without TLS"},
    {{"http", required_argument, NULL, 0},
     "http",
     "listen",
     NULL,
     RUN,
     "ADDRESS",
     "host:port or unix:/path for metrics, health and the status page"},
    {{"backend", required_argument, NULL, 0},
     "device",
     "backend",
     NULL,
     RUN,
     "auto|cpu|cuda",
     "where operators run"},
    {{"operators", required_argument, NULL, 0},
     "operators",
     "path",
     NULL,
     RUN,
     "DIR",
     "load the operator libraries in this directory"},
    {{"log-level", required_argument, NULL, 0},
     "log",
     "level",
     NULL,
     RUN,
     "error|warn|info|debug",
     "what is logged"},
    {{"check-config", no_argument, NULL, 0},
     NULL,
     NULL,
     NULL,
     CHECK,
     "",
     "read the configuration, say whether it is right, and exit"},
    {{"help-config", no_argument, NULL, 0},
     NULL,
     NULL,
     NULL,
     HELP_CONFIG,
     "",
     "list every configuration key"},
    {{"help", no_argument, NULL, 'h'}, NULL, NULL, NULL, HELP, "", "show this"},
    {{"version", no_argument, NULL, 'V'}, NULL, NULL, NULL, VERSION, "", "show the version"},
};
#define OPTIONS (sizeof options / sizeof *options)

static void print_help(FILE *out) {
    fprintf(out, "xopd: runs tensor operators on a GPU or CPU for any number of clients\n\n"
                 "usage: xopd [options]\n\n");
    for (size_t i = 0; i < OPTIONS; i++) {
        char left[64], letter[8] = "";
        if (options[i].option.val)
            snprintf(letter, sizeof letter, "-%c, ", options[i].option.val);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, options[i].option.name,
                 *options[i].argument ? " " : "", options[i].argument);
        fprintf(out, "  %-34s %s\n", left, options[i].doc);
    }
    fprintf(out, "\nExit status: 0 in order, 64 usage, 69 no usable backend or address, "
                 "70 internal, 71 system, 78 configuration.\n");
}

/* Values of the command line override the file's, wherever the file's option stands. */
struct overrides {
    struct {
        size_t option;
        const char *value;
    } list[CONFIG_LISTENERS + 16];
    size_t count;
};

static int parse(int argc, char **argv, enum action *action, const char **file,
                 struct overrides *overrides) {
    struct option table[OPTIONS + 1] = {0};
    for (size_t i = 0; i < OPTIONS; i++)
        table[i] = options[i].option;
    int index = -1, c;
    while ((c = getopt_long(argc, argv, "c:hV", table, &index)) != -1) {
        if (c == '?')
            return EX_USAGE;
        if (c != 0)
            for (index = 0; options[index].option.val != c;)
                index++;
        if (c == 'c')
            *file = optarg;
        else if (options[index].action != RUN)
            *action = options[index].action;
        else if (overrides->count < sizeof overrides->list / sizeof *overrides->list) {
            overrides->list[overrides->count].option = (size_t)index;
            overrides->list[overrides->count++].value =
                options[index].fixed ? options[index].fixed : optarg;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "xopd: unexpected argument: %s\n", argv[optind]);
        return EX_USAGE;
    }
    return 0;
}

/* Where the configuration comes from, now and on SIGHUP. */
struct sources {
    const char *file;
    struct overrides overrides;
};

static enum xop_status configure(const void *user, struct config *config, struct xop_error *error) {
    const struct sources *sources = user;
    const struct overrides *overrides = &sources->overrides;
    const char *file = sources->file;
    bool listeners = false;
    config_defaults(config);
    if (file && config_read(config, file, error) != XOP_OK)
        return error->status;
    for (size_t i = 0; i < overrides->count; i++) {
        size_t option = overrides->list[i].option;
        if (strcmp(options[option].section, "server") == 0 &&
            strcmp(options[option].key, "listen") == 0 && !listeners) {
            listeners = true;
            config->nlisten = 0;
        }
        if (config_set(config, options[option].section, options[option].key,
                       overrides->list[i].value, error) != XOP_OK)
            return error->status;
    }
    return config_finish(config, error);
}

int main(int argc, char **argv) {
    enum action action = RUN;
    struct sources sources = {0};
    struct config config;
    struct xop_error error;

    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return worker_main();
    log_init("parent", LOG_LEVEL_INFO);
    int usage = parse(argc, argv, &action, &sources.file, &sources.overrides);
    if (usage) {
        fprintf(stderr, "xopd: see xopd --help\n");
        return usage;
    }
    switch (action) {
    case HELP: print_help(stdout); return 0;
    case HELP_CONFIG: config_print_help(stdout); return 0;
    case VERSION: printf("xopd %s\n", XOP_VERSION); return 0;
    case RUN:
    case CHECK: break;
    }
    if (configure(&sources, &config, &error) != XOP_OK) {
        if (action == RUN) /* where a journal reads it, as an error */
            log_error("the configuration cannot be used: %s", error.message);
        else
            fprintf(stderr, "xopd: %s\n", error.message);
        return EX_CONFIG;
    }
    if (action == CHECK) {
        printf("xopd: the configuration is right\n");
        return 0;
    }
    log_set_level(config.log_level);
    return parent_main(&config, configure, &sources);
}
