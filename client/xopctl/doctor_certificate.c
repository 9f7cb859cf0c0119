/* How long certificates hold: that which the server's configuration names, and that of --cert. */
#include "doctor.h"

#include <errno.h>
#include <ini.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

#define WARN_DAYS 30

/* ---- Probe ---- */

static int days_until(const ASN1_TIME *time, int *days) {
    int seconds;
    int good = ASN1_TIME_diff(days, &seconds, NULL, time);
    if (good && seconds < 0) /* a second too late is a day missing */
        --*days;
    return good;
}

/* Of all in the file: those between it and its CA end its use as well. */
static void read_file(FILE *file, struct doctor_certificate *certificate) {
    X509 *one;
    int n = 0, days;
    while ((one = PEM_read_X509(file, NULL, NULL, NULL))) {
        if (!days_until(X509_get0_notAfter(one), &days)) {
            snprintf(certificate->why, sizeof certificate->why, "it ends at no time that is one");
        } else if (n++ == 0 || days < certificate->days) {
            certificate->days = days;
            X509_NAME_oneline(X509_get_subject_name(one), certificate->subject,
                              (int)sizeof certificate->subject);
        }
        if (X509_cmp_current_time(X509_get0_notBefore(one)) > 0)
            certificate->future = true;
        X509_free(one);
    }
    ERR_clear_error();
    if (n == 0 && !*certificate->why)
        snprintf(certificate->why, sizeof certificate->why, "there is no PEM certificate in it");
    certificate->read = n > 0;
}

static void add(const struct doctor_host *host, struct doctor_certificates *all, const char *whose,
                const char *path) {
    struct doctor_certificate *certificate = &all->certificate[all->n++];
    char whole[700];
    snprintf(certificate->whose, sizeof certificate->whose, "%s", whose);
    snprintf(certificate->path, sizeof certificate->path, "%s", path);
    snprintf(whole, sizeof whole, "%s%s", *path == '/' ? host->root : "", path);
    FILE *file = fopen(whole, "re");
    if (!file) {
        certificate->error = errno;
        snprintf(certificate->why, sizeof certificate->why, "%s", strerror(errno));
        return;
    }
    read_file(file, certificate);
    fclose(file);
}

static int note_certificate(void *path, const char *section, const char *key, const char *value) {
    if (strcmp(section, "tls") == 0 && strcmp(key, "cert") == 0)
        snprintf(path, DOCTOR_PATH, "%s", value);
    return 1;
}

void doctor_probe_certificates(const struct doctor_host *host, struct doctor_certificates *all) {
    char configured[DOCTOR_PATH] = "", whole[700];
    const char *config = host->config ? host->config : "/etc/xopd/xopd.conf";
    memset(all, 0, sizeof *all);
    snprintf(whole, sizeof whole, "%s%s", *config == '/' ? host->root : "", config);
    errno = 0;
    /* A wrong line is for xopd to tell; what is around it still says which certificate. */
    if (ini_parse(whole, note_certificate, configured) == -1 && (host->config || errno != ENOENT))
        snprintf(all->why, sizeof all->why, "%.300s: %s", config, strerror(errno));
    if (*configured)
        add(host, all, "the server's certificate", configured);
    if (host->options && host->options->cert)
        add(host, all, "the certificate of --cert", host->options->cert);
}

/* ---- Check ---- */

static void judge(const struct doctor_certificate *c, struct doctor_report *report) {
    if (!c->read && c->error == EACCES)
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "%s, %s: %s", c->whose, c->path, c->why),
                      "ask as a user who may read it");
    else if (!c->read)
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "%s, %s: %s", c->whose, c->path, c->why),
                      "put a PEM file there, or name another");
    else if (c->days < 0)
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "%s, %s (%s) expired %d days ago",
                                   c->whose, c->path, c->subject, -c->days),
                      "have it renewed; SIGHUP has xopd read it again");
    else if (c->future)
        doctor_advise(doctor_found(report, DOCTOR_PROBLEM, "%s, %s (%s) is not valid yet", c->whose,
                                   c->path, c->subject),
                      "set the clock, or have the certificate made anew");
    else if (c->days < WARN_DAYS)
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "%s, %s (%s) expires in %d days",
                                   c->whose, c->path, c->subject, c->days),
                      "have it renewed; SIGHUP has xopd read it again");
    else
        doctor_found(report, DOCTOR_OK, "%s, %s (%s) holds for %d days", c->whose, c->path,
                     c->subject, c->days);
}

void doctor_check_certificates(const struct doctor_facts *facts, struct doctor_report *report) {
    const struct doctor_certificates *all = &facts->certificates;
    if (*all->why)
        doctor_advise(doctor_found(report, DOCTOR_WARNING, "the configuration, %s", all->why),
                      "name it with --config, and ask as a user who may read it");
    for (int i = 0; i < all->n; i++)
        judge(&all->certificate[i], report);
}
