/*
 * The files of the status page, which lie in the executable: daemon/front/page/ has them as they
 * are written.
 */
#ifndef FRONT_PAGE_H
#define FRONT_PAGE_H

struct page {
    const char *path, *type;
    const unsigned char *begin, *end;
};

/* NULL where there is none. */
const struct page *page_find(const char *path);

#endif
