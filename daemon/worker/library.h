/*
 * Opens libraries of operators that users compiled. What is looked at before the linker gets it is
 * who may have written the file and whether it is whole: of a file that was cut off, the linker
 * maps pages that are not there, and the process ends by SIGBUS.
 */
#ifndef WORKER_LIBRARY_H
#define WORKER_LIBRARY_H

#include <xop/op.h>

/* Opens directory/name. UNIMPLEMENTED where it is for another backend, FAILED_PRECONDITION where it
 * cannot be used. The handle is the caller's, for dlclose. */
enum xop_status library_open(const char *directory, const char *name, const char *backend,
                             void **handle, const struct xop_library **library,
                             struct xop_error *error);

/* What the library is to be judged by; NULL where it brings nothing. FAILED_PRECONDITION where
 * version or sizes are not those of this xop/op.h, or an operator is named that it has not. */
enum xop_status library_references(void *handle, const struct xop_library *library,
                                   const struct xop_references **references,
                                   struct xop_error *error);

#endif
