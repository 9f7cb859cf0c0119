/*
 * xopctl doctor: probes find facts out, checks judge them. A probe takes where it looks from struct
 * doctor_host, so that a test can show it another machine; a check sees facts alone, so that a test
 * can make them up. Nothing here needs the daemon. Strings are cut where they do not fit.
 */
#ifndef XOPCTL_DOCTOR_H
#define XOPCTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xop/client.h>
#include <xop/types.h>

#define DOCTOR_DEVICES 16
#define DOCTOR_PATH 400
#define DOCTOR_FINDINGS 160

/* ---- Where to look ---- */

struct doctor_host {
    const char *root;    /* before every absolute path but those of sockets; "" */
    const char *address; /* of the daemon; NULL: where clients look */
    const struct xop_client_options *options; /* for connecting to it; NULL: the defaults */
    const char *const *backends; /* directories where xop-cuda.so may lie, NULL at the end */
    /* As dlopen and dlsym; why is filled where it fails. */
    void *(*open)(const char *library, char *why, size_t size);
    void *(*symbol)(void *library, const char *name);
    int (*may_use)(const char *path); /* 0 where reading and writing is allowed, -1 and errno */
    const char *config;               /* of the daemon; NULL: where it is usually */
    /* What `systemctl show` says of xopd.service; false where it cannot be asked. NULL: never. */
    bool (*ask_systemd)(char *text, size_t size);
};

/* The text of a small file, without the newline at its end; false where it cannot be read. */
bool doctor_read(const struct doctor_host *host, const char *path, char *text, size_t size);

/* ---- Facts ---- */

#define DOCTOR_UNKNOWN (-1)

struct doctor_device {
    char name[96];
    int architecture;      /* 90 is compute capability 9.0 */
    int compute_mode;      /* 0 default, 2 prohibited, 3 exclusive to a process */
    int mig;               /* 1 on, 0 off, or DOCTOR_UNKNOWN */
    int persistence;       /* the same */
    int ecc, ecc_next;     /* the same; next: from the next start of the machine on */
    int64_t memory_errors; /* uncorrectable ones since the driver was loaded, or as above */
};

struct doctor_driver {
    int on_bus;        /* NVIDIA GPUs that the PCI bus shows */
    char module[64];   /* version of the kernel module, "" where none is loaded */
    bool loaded;       /* libcuda.so.1 could be opened */
    char why[300];     /* why not */
    int cuda;          /* the CUDA version that it supports, 0 where it does not say */
    int init;          /* what cuInit or counting devices returned: 0 is success */
    char visible[200]; /* CUDA_VISIBLE_DEVICES, "" where it is not set */
    int ndevices;
    struct doctor_device device[DOCTOR_DEVICES];
    int nvml;         /* what NVML's initialisation returned, 0 where it cannot be opened */
    char version[96]; /* of the driver's libraries, "" where NVML does not say */
    char mps[200];    /* where an MPS daemon has its pipes, "" where there is none */
};

struct doctor_build {
    bool found; /* there is an xop-cuda.so */
    char path[300];
    bool noted;                  /* and it says what it was built for */
    char why[300];               /* why not, of either */
    int toolkit;                 /* CUDA version */
    char machine[200], ptx[100]; /* architectures, "75,90" */
    char cublaslt[32];           /* built against; "" where products of matrices were left out */
    bool has_cublaslt;           /* one of that version can be opened */
    char cublaslt_why[300];
};

struct doctor_limits {
    char node[64];    /* the first of /dev/nvidia* that is there and may not be used; "" none */
    int denied;       /* errno of that */
    char huge[16];    /* huge pages of shared memory: always, advise, never, ...; "" unknown */
    uint64_t memlock; /* bytes that this user's processes may lock; UINT64_MAX: any number */
};

struct doctor_daemon {
    bool answers, ready;
    char why[512]; /* why it does not answer, or is not ready */
    char version[32], backend[32], device[128];
    char fallback_reason[300]; /* why it uses no GPU */
};

struct doctor_certificate {
    char whose[32];
    char path[DOCTOR_PATH];
    bool read;
    char why[100]; /* why not */
    int error;     /* errno, where opening failed */
    char subject[128];
    int days;    /* that are left, of the one in the file that ends first; below 0: it has */
    bool future; /* one of them is not valid yet */
};

struct doctor_certificates {
    char why[DOCTOR_PATH]; /* why the configuration does not say which */
    int n;
    struct doctor_certificate certificate[2];
};

struct doctor_service {
    bool systemd, answers;
    char load[32], active[32], sub[32], result[32]; /* as systemctl show has them */
    long restarts;
};

struct doctor_facts {
    struct doctor_driver driver;
    struct doctor_build build;
    struct doctor_daemon daemon;
    struct doctor_limits limits;
    struct doctor_certificates certificates;
    struct doctor_service service;
};

void doctor_probe_driver(const struct doctor_host *host, struct doctor_driver *driver);
/* The kernel's side of it, which loads nothing. */
void doctor_probe_bus(const struct doctor_host *host, struct doctor_driver *driver);
void doctor_probe_build(const struct doctor_host *host, struct doctor_build *build);
void doctor_probe_limits(const struct doctor_host *host, struct doctor_limits *limits);
void doctor_probe_certificates(const struct doctor_host *host, struct doctor_certificates *all);
void doctor_probe_service(const struct doctor_host *host, struct doctor_service *service);
void doctor_probe_daemon(const struct doctor_host *host, struct doctor_daemon *daemon);
void doctor_probe(const struct doctor_host *host, struct doctor_facts *facts);

/* ---- Findings ---- */

enum doctor_grade { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM };

struct doctor_finding {
    enum doctor_grade grade;
    const char *check;
    char found[500];
    char advice[600]; /* what to do; "" where nothing is to be done */
};

struct doctor_report {
    const char *check; /* that is running */
    int n;
    struct doctor_finding finding[DOCTOR_FINDINGS];
};

/* Adds what a check found; never NULL. */
struct doctor_finding *doctor_found(struct doctor_report *report, enum doctor_grade grade,
                                    const char *format, ...) XOP_PRINTF(3, 4);
void doctor_advise(struct doctor_finding *finding, const char *format, ...) XOP_PRINTF(2, 3);

/* Checks that live beside their probes. */
void doctor_check_certificates(const struct doctor_facts *facts, struct doctor_report *report);
void doctor_check_service(const struct doctor_facts *facts, struct doctor_report *report);

/* Runs every check; returns the worst grade. */
enum doctor_grade doctor_judge(const struct doctor_facts *facts, struct doctor_report *report);
const char *doctor_grade_name(enum doctor_grade grade);

#endif
