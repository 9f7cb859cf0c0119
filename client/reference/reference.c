#include "reference.h"

#include <string.h>

static const struct reference *const all[] = {&reference_square_bias, &reference_sigmoid,
                                              &reference_sigmoid_complement,
                                              &reference_bose_einstein, &reference_linear};

const struct reference *reference_at(uint32_t n) {
    return n < sizeof all / sizeof *all ? all[n] : NULL;
}

const struct reference *reference_find(const char *name) {
    for (uint32_t i = 0; reference_at(i); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
