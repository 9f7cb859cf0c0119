/*
 * What a backend was built for, as an ELF note that programs read from the file without loading it:
 * lines "key=value". Whoever lacks the libraries that loading would need is who wants to know.
 */
#ifndef XOP_BUILD_NOTE_H
#define XOP_BUILD_NOTE_H

#include <stdint.h>

#define BUILD_NOTE_OWNER "xopd"
#define BUILD_NOTE_TYPE 1u

/* At file scope, once in a shared object. Notes are aligned to 4 bytes, and so are their parts. */
#define BUILD_NOTE(text)                                                                           \
    __attribute__((section(".note.xopd"), used, aligned(4))) static const struct {                 \
        uint32_t owner_bytes, bytes, type;                                                         \
        char owner[(sizeof BUILD_NOTE_OWNER + 3) / 4 * 4];                                         \
        char content[(sizeof(text) + 3) / 4 * 4];                                                  \
    } build_note = {sizeof BUILD_NOTE_OWNER, sizeof(text), BUILD_NOTE_TYPE, BUILD_NOTE_OWNER, text}

#endif
