#include "page.h"

#include <stddef.h>
#include <string.h>

/* name_begin to name_end are the file's bytes. */
#define HOLD(name, file)                                                                           \
    __asm__(".pushsection .rodata\n" #name "_begin:\n.incbin \"daemon/front/page/" file            \
            "\"\n" #name "_end:\n.popsection\n");                                                  \
    extern const unsigned char name##_begin[], name##_end[]

HOLD(page_html, "status.html");
HOLD(page_css, "status.css");
HOLD(page_js, "status.js");

static const struct page pages[] = {
    {"/", "text/html; charset=utf-8", page_html_begin, page_html_end},
    {"/status.css", "text/css; charset=utf-8", page_css_begin, page_css_end},
    {"/status.js", "text/javascript; charset=utf-8", page_js_begin, page_js_end},
};

const struct page *page_find(const char *path) {
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(path, pages[i].path) == 0)
            return &pages[i];
    return NULL;
}
