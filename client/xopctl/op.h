/*
 * The verb op: operators of one's own, from a first file to the daemon's directory. op.c picks the
 * action; each has a file of its own. Libraries are opened by op_load.c alone, and only in
 * processes that may end by them. Single-threaded.
 */
#ifndef XOPCTL_OP_H
#define XOPCTL_OP_H

#include "client/reference/reference.h"
#include "session.h"

#include <xop/op.h>

#define OP_MAX_OPS 64 /* that are told of a library */

/* What a library is, found by a process that opened it and ended. */
struct op_facts {
    char backend[8];
    uint32_t nops;
    struct {
        char name[XOP_MAX_NAME + 1];
        bool referenced;
    } ops[OP_MAX_OPS];
    struct xop_error error;
};

/* Opens a library for whichever backend it is, and checks its declarations, as a worker does. */
enum xop_status op_open(const char *path, const struct xop_library **library,
                        const struct xop_references **references, struct xop_error *error);
/* The same in a process of its own, whose end by the library is a failure like any other. */
enum xop_status op_probe(const char *path, struct op_facts *facts, struct xop_error *error);

/* References for verify, made from a library that op_open opened: shapes by its infer, values by
 * its references. FAILED_PRECONDITION where an operator is of a kind that has no cases. */
enum xop_status op_reference_use(const struct xop_library *library,
                                 const struct xop_references *references, struct xop_error *error);
const struct reference *op_reference_find(const char *name);

/* A daemon of one's own, for one library: private socket, in a directory that goes with it. */
struct op_scratch;
struct op_scratch_plan {
    const char *library, *backend;
    const char *const *prefix; /* a command that runs xopd; NULL: none */
    /* Called in a process of its own once the daemon is ready; what it returns is the status. */
    int (*work)(void *arg, const char *address);
    void *arg;
};
int op_scratch_run(struct session *session, const struct op_scratch_plan *plan);

/* The text with every "template_op" replaced by name; NULL: no memory. The caller frees it. */
char *op_template(bool cuda, const char *name);
bool op_is_name(const char *name);

/* A program beside xopctl, or in PATH. */
bool op_find_program(const char *name, char *path, size_t capacity);
/* The directory that holds xop/op.h. */
bool op_find_headers(char *path, size_t capacity);

int op_new(struct session *session, int argc, char **argv);
int op_build(struct session *session, int argc, char **argv);
int op_check(struct session *session, int argc, char **argv);
int op_install(struct session *session, int argc, char **argv);

#endif
