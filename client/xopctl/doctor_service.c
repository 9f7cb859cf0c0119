/* What systemd says of xopd.service, where there is systemd. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Probe ---- */

/* The value of a line `key=value`. */
static void take_value(const char *text, const char *key, char *out, size_t size) {
    size_t length = strlen(key);
    out[0] = 0;
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, key, length) == 0 && line[length] == '=')
            snprintf(out, size, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
}

void doctor_probe_service(const struct doctor_host *host, struct doctor_service *service) {
    char path[400], text[1000], restarts[32];
    struct stat info;
    memset(service, 0, sizeof *service);
    snprintf(path, sizeof path, "%.300s/run/systemd/system", host->root);
    service->systemd = stat(path, &info) == 0;
    if (!service->systemd)
        return;
    service->answers = host->ask_systemd && host->ask_systemd(text, sizeof text);
    if (!service->answers)
        return;
    take_value(text, "LoadState", service->load, sizeof service->load);
    take_value(text, "ActiveState", service->active, sizeof service->active);
    take_value(text, "SubState", service->sub, sizeof service->sub);
    take_value(text, "Result", service->result, sizeof service->result);
    take_value(text, "NRestarts", restarts, sizeof restarts);
    service->restarts = strtol(restarts, NULL, 10);
}

/* ---- Check ---- */

void doctor_check_service(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_service *service = &facts->service;
    if (!service->systemd)
        return;
    if (!service->answers || !*service->load) {
        doctor_advise(
            doctor_found(report, DOCTOR_WARNING, "systemd does not say how xopd.service is"),
            "see systemctl status xopd");
    } else if (strcmp(service->load, "not-found") == 0) {
        doctor_found(report, DOCTOR_OK, "there is no xopd.service: it is started by other means");
    } else if (strcmp(service->load, "loaded") != 0) {
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "xopd.service is %s", service->load),
                      "%s",
                      strcmp(service->load, "masked") == 0
                          ? "systemctl unmask xopd, and systemctl enable --now xopd"
                          : "systemd-analyze verify xopd.service says what is wrong with it");
    } else if (strcmp(service->active, "failed") == 0) {
        doctor_advise(
            doctor_found(report, DOCTOR_PROBLEM, "xopd.service has failed: %s", service->result),
            "journalctl -u xopd says why; then systemctl restart xopd");
    } else if (strcmp(service->active, "active") == 0 && service->restarts > 0) {
        doctor_advise(doctor_found(report, DOCTOR_WARNING,
                                   "xopd.service is active, but was restarted %ld times",
                                   service->restarts),
                      "journalctl -u xopd says why");
    } else if (strcmp(service->active, "active") == 0) {
        doctor_found(report, DOCTOR_OK, "xopd.service is active (%s)", service->sub);
    } else if (strcmp(service->active, "inactive") == 0 && facts->daemon.answers) {
        doctor_found(report, DOCTOR_OK, "xopd.service is inactive: another xopd answers");
    } else {
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "xopd.service is %s (%s)",
                                   service->active, service->sub),
                      "%s",
                      strcmp(service->active, "inactive") == 0
                          ? "systemctl enable --now xopd"
                          : "journalctl -u xopd says what it waits for");
    }
}
