/*
 * A file that appears whole: it is opened beside its place, so that one that cannot be made is told
 * before the work is done, and takes its place when it is finished. Single-threaded.
 */
#ifndef XOPCTL_OUTFILE_H
#define XOPCTL_OUTFILE_H

#include <stdio.h>
#include <xop/types.h>

struct outfile {
    FILE *stream; /* to be written; NULL: there is none */
    char name[4096], beside[4200];
};

/* A pipe or a device is written as it is. On failure nothing is to be closed. */
enum xop_status outfile_open(struct outfile *file, const char *name, struct xop_error *error);
/* Fails as well where something could not be written before. */
enum xop_status outfile_finish(struct outfile *file, struct xop_error *error);
/* Removes what was not finished. */
void outfile_close(struct outfile *file);

#endif
