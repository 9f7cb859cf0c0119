#include "seam.h"

#include <string.h>

static size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

uint32_t seam_release_slots(uint32_t records) { return records * 4; }

static size_t lane_bytes(uint32_t records) {
    return 64 + 2 * ring_bytes(records) + ring_bytes(seam_release_slots(records)) +
           round_up(records * sizeof(struct seam_request), 64) +
           round_up(records * sizeof(struct seam_result), 64);
}

size_t seam_bytes(uint32_t lanes, uint32_t records) {
    return round_up(sizeof(struct seam_header), 64) + lanes * lane_bytes(records);
}

void seam_view(void *seam, uint32_t index, uint32_t records, struct seam_lane *lane) {
    unsigned char *at = (unsigned char *)seam + round_up(sizeof(struct seam_header), 64) +
                        index * lane_bytes(records);
    lane->bell = (struct ring_bell *)at;
    at += 64;
    ring_view(&lane->submit, (struct ring_shared *)at, records);
    at += ring_bytes(records);
    ring_view(&lane->complete, (struct ring_shared *)at, records);
    at += ring_bytes(records);
    ring_view(&lane->release, (struct ring_shared *)at, seam_release_slots(records));
    at += ring_bytes(seam_release_slots(records));
    lane->requests = (struct seam_request *)at;
    at += round_up(records * sizeof(struct seam_request), 64);
    lane->results = (struct seam_result *)at;
}

/* Bytes of an attribute's value, and where the value lies in the attribute; false for no type. */
static bool value_bytes(enum xop_attr_type type, uint32_t count, size_t *bytes) {
    switch (type) {
    case XOP_ATTR_INT:
    case XOP_ATTR_FLOAT:
    case XOP_ATTR_BOOL: *bytes = 8; return count == 1;
    case XOP_ATTR_STRING: *bytes = (size_t)count + 1; return count <= XOP_MAX_ATTR_STRING;
    case XOP_ATTR_INTS:
    case XOP_ATTR_FLOATS: *bytes = 8 * (size_t)count; return count <= XOP_MAX_ATTR_LIST;
    case XOP_ATTR_NONE: break;
    }
    return false;
}

static size_t value_at(size_t name_bytes) {
    return round_up(sizeof(struct seam_attr) + name_bytes, 8);
}

static bool is_scalar(enum xop_attr_type type) {
    return type == XOP_ATTR_INT || type == XOP_ATTR_FLOAT || type == XOP_ATTR_BOOL;
}

bool seam_put_attr(unsigned char *buffer, size_t capacity, size_t *used,
                   const struct xop_attr *attr) {
    uint32_t count = is_scalar(attr->type) ? 1 : attr->count;
    size_t name_bytes = strlen(attr->name) + 1, bytes;
    if (name_bytes > XOP_MAX_NAME + 1 || !value_bytes(attr->type, count, &bytes))
        return false;
    size_t start = value_at(name_bytes), total = round_up(start + bytes, 8);
    if (total > capacity - *used)
        return false;
    unsigned char *at = buffer + *used;
    struct seam_attr head = {(uint8_t)attr->type, (uint8_t)name_bytes, (uint16_t)total, count};
    memset(at, 0, total);
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, attr->name, name_bytes);
    if (is_scalar(attr->type))
        memcpy(at + start, &attr->value, 8);
    else if (count > 0)
        memcpy(at + start, attr->value.string,
               attr->type == XOP_ATTR_STRING ? count : 8 * (size_t)count);
    *used += total;
    return true;
}

bool seam_get_attr(const unsigned char *buffer, size_t bytes, size_t *used, struct xop_attr *attr) {
    struct seam_attr head;
    size_t value;
    if (*used > bytes || bytes - *used < sizeof head)
        return false;
    const unsigned char *at = buffer + *used;
    memcpy(&head, at, sizeof head);
    enum xop_attr_type type = (enum xop_attr_type)head.type;
    if (!value_bytes(type, head.count, &value) || head.name_bytes == 0 ||
        head.name_bytes > XOP_MAX_NAME + 1)
        return false;
    size_t start = value_at(head.name_bytes);
    if (head.bytes != round_up(start + value, 8) || head.bytes > bytes - *used ||
        strnlen((const char *)at + sizeof head, head.name_bytes) != head.name_bytes - 1u)
        return false;
    /* Whoever takes the name or the string for one of C sees all of it. */
    if (type == XOP_ATTR_STRING && strnlen((const char *)at + start, value) != head.count)
        return false;
    *attr = (struct xop_attr){(const char *)at + sizeof head, type, head.count, {0}};
    if (is_scalar(type))
        memcpy(&attr->value, at + start, 8);
    else
        attr->value.string = (const char *)at + start; /* aligned to 8, as is buffer */
    *used += head.bytes;
    return true;
}
