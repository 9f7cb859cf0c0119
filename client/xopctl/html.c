#include "html.h"

#include <string.h>

void html_text(FILE *out, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        switch (*at) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default:
            /* XML has no other control characters, not even escaped. */
            putc(*at >= ' ' || *at == '\n' || *at == '\t' ? *at : '?', out);
        }
    }
}

static void vtext(FILE *out, const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    html_text(out, text);
}

void html_textf(FILE *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vtext(out, format, args);
    va_end(args);
}

void html_element(FILE *out, const char *tag, const char *format, ...) {
    va_list args;
    fprintf(out, "<%s>", tag);
    va_start(args, format);
    vtext(out, format, args);
    va_end(args);
    fprintf(out, "</%.*s>\n", (int)strcspn(tag, " "), tag);
}
