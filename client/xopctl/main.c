#include "session.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const struct verb *const verbs[] = {&verb_ops,   &verb_run,    &verb_verify,
                                           &verb_bench, &verb_stats,  &verb_top,
                                           &verb_ping,  &verb_doctor, &verb_op};
#define VERBS (sizeof verbs / sizeof *verbs)

static const struct verb *find(const char *name) {
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

static void print_help(FILE *out) {
    fprintf(out, "xopctl: runs and checks the operators of an xopd\n\n"
                 "usage: xopctl [-s ADDRESS] VERB ...\n\n");
    for (size_t i = 0; i < VERBS; i++)
        fprintf(out, "  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(
        out,
        "\n  -s, --server ADDRESS  unix:/path, unix:@name, tls:host:port or tcp:host:port;\n"
        "                        without it XOP_ADDRESS, $XDG_RUNTIME_DIR/xopd/xopd.sock\n"
        "                        and /run/xopd/xopd.sock are tried\n"
        "  --ca FILE             verify a tls: server with this CA, not with the system's\n"
        "  --cert FILE           show this certificate to a tls: server\n"
        "  --key FILE            its private key, where it is not in the same file\n"
        "  --token-file FILE     tell the server the token in this file, which says who you are\n"
        "  --insecure-token      over tcp: as well, where whoever listens can read it\n"
        "  -h, --help            this; after a verb, its options\n"
        "  -V, --version         the version\n");
}

static int print_verb_help(const struct verb *verb) {
    printf("usage: xopctl [-s ADDRESS] %s %s\n\n%s\n\n%s", verb->name, verb->usage, verb->summary,
           verb->details);
    return session_finish_output();
}

static bool asks_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int help(int argc, char **argv) {
    const struct verb *verb = argc > 1 ? find(argv[1]) : NULL;
    if (verb)
        return print_verb_help(verb);
    if (argc > 1)
        return session_usage(NULL, "there is no verb \"%s\"", argv[1]);
    print_help(stdout);
    return session_finish_output();
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"server", required_argument, NULL, 's'},
                                            {"ca", required_argument, NULL, 'a'},
                                            {"cert", required_argument, NULL, 'c'},
                                            {"key", required_argument, NULL, 'k'},
                                            {"token-file", required_argument, NULL, 't'},
                                            {"insecure-token", no_argument, NULL, 'i'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {NULL, 0, NULL, 0}};
    struct session session = {0};
    struct xop_error error;
    int c;
    const char *token_file = NULL;
    const char *no_color = getenv("NO_COLOR");
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is told by the exit status */
    session.color = isatty(STDOUT_FILENO) && !(no_color && *no_color);
    session.progress = isatty(STDERR_FILENO);
    while ((c = getopt_long(argc, argv, "+s:hV", options, NULL)) != -1) {
        switch (c) {
        case 's': session.address = optarg; break;
        case 'a': session.ca = optarg; break;
        case 'c': session.cert = optarg; break;
        case 'k': session.key = optarg; break;
        case 't': token_file = optarg; break;
        case 'i': session.insecure_token = true; break;
        case 'h': print_help(stdout); return session_finish_output();
        case 'V': printf("xopctl %s\n", XOP_VERSION); return session_finish_output();
        default: return session_usage(NULL, "wrong usage");
        }
    }
    if (optind == argc) {
        print_help(stderr);
        return EX_USAGE;
    }
    argc -= optind;
    argv += optind;
    if (strcmp(argv[0], "help") == 0)
        return help(argc, argv);
    if (strcmp(argv[0], "version") == 0) {
        printf("xopctl %s\n", XOP_VERSION);
        return session_finish_output();
    }
    const struct verb *verb = find(argv[0]);
    if (!verb)
        return session_usage(NULL, "there is no verb \"%s\"", argv[0]);
    if (asks_help(argc, argv))
        return print_verb_help(verb);
    if (token_file && token_read(token_file, session.token, &error) != XOP_OK)
        return session_fail(&session, EX_NOINPUT, error.status, "%s", error.message);
    optind = 0; /* getopt starts afresh */
    int status = verb->run(&session, argc, argv);
    xop_client_close(session.client);
    int output = session_finish_output();
    return status ? status : output;
}
