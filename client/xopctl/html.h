/*
 * Writing HTML and SVG to a stream: text is escaped, tags are as given. Failures stay in the
 * stream, to be found with ferror when all is written. Single-threaded.
 */
#ifndef XOPCTL_HTML_H
#define XOPCTL_HTML_H

#include <stdio.h>
#include <xop/types.h>

/* Text, or the inside of an attribute in double quotes. */
void html_text(FILE *out, const char *text);
/* The same, formatted; 1023 bytes at most. */
void html_textf(FILE *out, const char *format, ...) XOP_PRINTF(2, 3);
/* <tag>text</tag>; tag may have attributes: `th scope="row"`. */
void html_element(FILE *out, const char *tag, const char *format, ...) XOP_PRINTF(3, 4);

/* A file that appears whole: it is opened beside its place, so that one that cannot be made is told
 * before the work is done, and takes its place when it is finished. */
struct html_file {
    FILE *stream; /* NULL: there is none */
    char name[4096], beside[4200];
};

enum xop_status html_file_open(struct html_file *file, const char *name, struct xop_error *error);
enum xop_status html_file_finish(struct html_file *file, struct xop_error *error);
/* Removes what was not finished. */
void html_file_close(struct html_file *file);

#endif
