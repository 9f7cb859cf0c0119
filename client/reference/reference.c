#include "reference.h"

#include <string.h>

static const struct reference *const all[] = {
#define REFERENCE(name) &reference_##name,
#include "references.def"
#undef REFERENCE
};

const struct reference *reference_at(uint32_t n) {
    return n < sizeof all / sizeof *all ? all[n] : NULL;
}

static const struct xop_attr *attr_of(const struct reference_arithmetic *arithmetic,
                                      const char *name) {
    const struct reference_setting *setting = arithmetic->setting;
    for (uint32_t i = 0; setting && i < setting->nattrs; i++)
        if (strcmp(setting->attr[i].name, name) == 0)
            return &setting->attr[i];
    return NULL;
}

double reference_number(const struct reference_arithmetic *arithmetic, const char *name,
                        double fallback) {
    const struct xop_attr *attr = attr_of(arithmetic, name);
    return !attr ? fallback : attr->type == XOP_ATTR_FLOAT ? attr->value.f : (double)attr->value.i;
}

const char *reference_text(const struct reference_arithmetic *arithmetic, const char *name,
                           const char *fallback) {
    const struct xop_attr *attr = attr_of(arithmetic, name);
    return attr ? attr->value.string : fallback;
}

const struct reference *reference_find(const char *name) {
    for (uint32_t i = 0; reference_at(i); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
