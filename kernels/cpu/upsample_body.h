/*
 * The loops of upsample.c for one dtype; see typed.h. Each takes a range of elements of what it
 * writes. No include guard.
 */

static void TYPED(forward)(void *arg, int64_t begin, int64_t end) {
    const struct upsample *s = arg;
    const struct upsample_dim *rows = &s->plan.rows, *columns = &s->plan.columns;
    int64_t column = begin % columns->out, line = begin / columns->out;
    ELEMENT *y = s->out;

    for (; begin < end; line++, column = 0) {
        struct upsample_source r = upsample_source(rows, line % rows->out);
        const ELEMENT *upper =
            (const ELEMENT *)s->x + (line / rows->out * rows->in + r.first) * columns->in;
        for (; column < columns->out && begin < end; column++) {
            struct upsample_source c = upsample_source(columns, column);
            double value = LOAD(upper[c.first]);
            if (c.next > 0)
                value = (1 - c.next) * value + c.next * LOAD(upper[c.first + 1]);
            if (r.next > 0) {
                const ELEMENT *lower = upper + columns->in;
                double below = LOAD(lower[c.first]);
                if (c.next > 0)
                    below = (1 - c.next) * below + c.next * LOAD(lower[c.first + 1]);
                value = (1 - r.next) * value + r.next * below;
            }
            y[begin++] = STORE(value);
        }
    }
}

static void TYPED(backward)(void *arg, int64_t begin, int64_t end) {
    const struct upsample *s = arg;
    const struct upsample_dim *rows = &s->plan.rows, *columns = &s->plan.columns;
    const ELEMENT *grad_y = s->grad_y;
    int64_t column = begin % columns->in, line = begin / columns->in;
    ELEMENT *grad_x = s->out;

    for (; begin < end; line++, column = 0) {
        const int64_t row = line % rows->in;
        const struct upsample_range r = upsample_readers(rows, row);
        for (; column < columns->in && begin < end; column++) {
            const struct upsample_range c = upsample_readers(columns, column);
            double sum = 0;
            for (int64_t i = r.first; i < r.last; i++) {
                const ELEMENT *from = grad_y + (line / rows->in * rows->out + i) * columns->out;
                double weight = upsample_weight(rows, i, row), part = 0;
                for (int64_t k = c.first; k < c.last && weight > 0; k++) {
                    double share = upsample_weight(columns, k, column);
                    if (share > 0)
                        part += share * LOAD(from[k]);
                }
                if (weight > 0)
                    sum += weight * part;
            }
            grad_x[begin++] = STORE(sum);
        }
    }
}
