/* The verb doctor. */
#include "doctor.h"

#include "lookup.h"
#include "session.h"

#include <dlfcn.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

bool doctor_read(const struct doctor_host *host, const char *path, char *text, size_t size) {
    char whole[600];
    snprintf(whole, sizeof whole, "%s%s", host->root, path);
    FILE *file = fopen(whole, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, size - 1, file);
    fclose(file);
    text[n] = 0;
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = 0;
    return n > 0;
}

static void *open_library(const char *library, char *why, size_t size) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *reason = handle ? NULL : dlerror();
    snprintf(why, size, "%s", reason ? reason : "");
    return handle;
}

static int may_use(const char *path) { return access(path, R_OK | W_OK); }

static void *find_symbol(void *library, const char *name) { return dlsym(library, name); }

static bool ask_systemd(char *text, size_t size) {
    FILE *systemctl = popen("systemctl show xopd.service --property=LoadState,ActiveState,SubState,"
                            "Result,NRestarts 2>/dev/null",
                            "re");
    if (!systemctl)
        return false;
    size_t n = fread(text, 1, size - 1, systemctl);
    text[n] = 0;
    return pclose(systemctl) == 0 && n > 0;
}

void doctor_probe_daemon(const struct doctor_host *host, struct doctor_daemon *daemon) {
    struct xop_client *client;
    struct xop_result *result;
    struct xop_error error;
    memset(daemon, 0, sizeof *daemon);
    if (xop_client_open(host->address, host->options, &client, &error) != XOP_OK) {
        snprintf(daemon->why, sizeof daemon->why, "%s", error.message);
        return;
    }
    xop_ping(client, &result);
    json_t *ping = result && result->text ? json_loads(result->text, 0, NULL) : NULL;
    daemon->answers = ping != NULL;
    daemon->ready = json_is_true(json_object_get(ping, "ready"));
    snprintf(daemon->why, sizeof daemon->why, "%s",
             ping     ? lookup_text(ping, "reason")
             : result ? result->error.message
                      : "out of memory");
    snprintf(daemon->version, sizeof daemon->version, "%s", lookup_text(ping, "version"));
    snprintf(daemon->backend, sizeof daemon->backend, "%s", lookup_text(ping, "backend"));
    snprintf(daemon->device, sizeof daemon->device, "%s", lookup_text(ping, "device"));
    snprintf(daemon->fallback_reason, sizeof daemon->fallback_reason, "%s",
             lookup_text(ping, "fallback_reason"));
    json_decref(ping);
    xop_result_free(result);
    xop_client_close(client);
}

void doctor_probe(const struct doctor_host *host, struct doctor_facts *facts) {
    doctor_probe_limits(host, &facts->limits);
    doctor_probe_build(host, &facts->build);
    doctor_probe_driver(host, &facts->driver);
    doctor_probe_daemon(host, &facts->daemon);
    doctor_probe_certificates(host, &facts->certificates);
    doctor_probe_service(host, &facts->service);
}

static int print_json(const struct doctor_report *report, enum doctor_grade worst) {
    json_t *list = json_array();
    for (int i = 0; i < report->n; i++) {
        const struct doctor_finding *finding = &report->finding[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "check", finding->check,
                                              "grade", doctor_grade_name(finding->grade), "found",
                                              finding->found, "advice", finding->advice));
    }
    return session_print_json(
        json_pack("{s:s, s:o}", "worst", doctor_grade_name(worst), "findings", list));
}

static int print_text(const struct doctor_report *report) {
    for (int i = 0; i < report->n; i++) {
        const struct doctor_finding *finding = &report->finding[i];
        printf("%-8s %-14s %s\n", doctor_grade_name(finding->grade), finding->check,
               finding->found);
        if (*finding->advice)
            printf("%-8s %-14s what to do: %s\n", "", "", finding->advice);
    }
    return session_finish_output();
}

static int run_doctor(struct session *session, int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"config", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    char beside[300], installed[320];
    const char *const places[] = {beside, installed, XOPD_LIBDIR, NULL};
    const struct xop_client_options connecting = session_options(session);
    struct doctor_host host = {.root = "",
                               .address = session->address,
                               .options = &connecting,
                               .backends = places,
                               .open = open_library,
                               .symbol = find_symbol,
                               .may_use = may_use,
                               .ask_systemd = ask_systemd};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'c': host.config = optarg; break;
        case 'j': session->json = true; break;
        default: return session_usage(&verb_doctor, "wrong usage");
        }
    }
    if (optind < argc)
        return session_usage(&verb_doctor, "unexpected: %s", argv[optind]);
    ssize_t n = readlink("/proc/self/exe", beside, sizeof beside - 1);
    beside[n > 0 ? n : 0] = 0;
    char *slash = strrchr(beside, '/');
    if (slash)
        *slash = 0;
    snprintf(installed, sizeof installed, "%s/../lib/xopd", beside);
    struct doctor_facts *facts = calloc(1, sizeof *facts);
    struct doctor_report *report = calloc(1, sizeof *report);
    int status = EX_OSERR;
    if (facts && report) {
        doctor_probe(&host, facts);
        enum doctor_grade worst = doctor_judge(facts, report);
        status = session->json ? print_json(report, worst) : print_text(report);
        status = status ? status : (int)worst;
    } else {
        session_fail(session, EX_OSERR, XOP_RESOURCE_EXHAUSTED, "out of memory");
    }
    free(facts);
    free(report);
    return status;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .usage = "[--config FILE] [--json]",
    .summary = "say what is missing, for xopd to serve and to use a GPU, and what to do",
    .details = "  --config   the configuration of xopd, for its certificate (/etc/xopd/xopd.conf)\n"
               "  --json     {worst, findings: [{check, grade, found, advice}]}\n\n"
               "The exit status is 0 where all is ok, 1 with a warning, 2 with a problem.\n",
    .run = run_doctor,
};
