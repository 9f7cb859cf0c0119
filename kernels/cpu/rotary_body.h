/*
 * The loop of rotary.c for one dtype; see typed.h. It takes a range of rows. No include guard.
 */

static void TYPED(rotate)(void *arg, int64_t begin, int64_t end) {
    const struct rotary *s = arg;
    const struct rotary_plan *plan = &s->plan;
    const int64_t half = plan->half;

    for (int64_t row = begin; row < end; row++) {
        int64_t angles =
            row / plan->rows_of_sample * plan->angles_of_sample + row % plan->positions * half;
        const ELEMENT *x = (const ELEMENT *)s->x + row * plan->width;
        const ELEMENT *cosine = (const ELEMENT *)s->cosine + angles;
        const ELEMENT *sine = (const ELEMENT *)s->sine + angles;
        ELEMENT *y = (ELEMENT *)s->y + row * plan->width;

        for (int64_t k = 0; k < half; k++) {
            int64_t i = plan->interleaved ? 2 * k : k, j = plan->interleaved ? i + 1 : i + half;
            double a = LOAD(x[i]), b = LOAD(x[j]), c = LOAD(cosine[k]);
            double d = s->back ? -LOAD(sine[k]) : LOAD(sine[k]);
            y[i] = STORE(a * c - b * d);
            y[j] = STORE(a * d + b * c);
        }
        memmove(y + 2 * half, x + 2 * half, (size_t)(plan->width - 2 * half) * sizeof *y);
    }
}
