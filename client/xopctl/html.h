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

#endif
