/*
 * The loops of window.c for one dtype; see typed.h. Each takes a range of elements of what it
 * writes. No include guard.
 */

static void TYPED(max_forward)(void *arg, int64_t begin, int64_t end) {
    const struct window *s = arg;
    const int64_t width = s->plan.columns.in;
    ELEMENT *y = s->out;

    for (struct place at = place_of(&s->plan.rows, &s->plan.columns, begin); begin < end;
         begin++, place_next(&at)) {
        const ELEMENT *x = (const ELEMENT *)s->x + at.plane * s->plan.rows.in * width;
        double most = -INFINITY;
        for (int64_t j = at.rows.first; j < at.rows.last; j++)
            for (int64_t k = at.columns.first; k < at.columns.last; k++)
                most = larger(most, LOAD(x[(at.row + j * s->plan.rows.dilation) * width +
                                           at.column + k * s->plan.columns.dilation]));
        y[begin] = STORE(most);
    }
}

/* Leaves which is the largest: of several the first, of several NaN the last. */
static void TYPED(max_find)(void *arg, int64_t begin, int64_t end) {
    const struct window *s = arg;
    const int64_t width = s->plan.columns.in;

    for (struct place at = place_of(&s->plan.rows, &s->plan.columns, begin); begin < end;
         begin++, place_next(&at)) {
        const ELEMENT *x = (const ELEMENT *)s->x + at.plane * s->plan.rows.in * width;
        double most = -INFINITY;
        int64_t which = -1;
        for (int64_t j = at.rows.first; j < at.rows.last; j++)
            for (int64_t k = at.columns.first; k < at.columns.last; k++) {
                double value = LOAD(x[(at.row + j * s->plan.rows.dilation) * width + at.column +
                                      k * s->plan.columns.dilation]);
                if (which >= 0 && !(value > most) && value == value)
                    continue;
                most = value;
                which = j * s->plan.columns.kernel + k;
            }
        s->found[begin] = which < 0 ? WINDOW_NONE : (uint32_t)which;
    }
}

static void TYPED(avg_forward)(void *arg, int64_t begin, int64_t end) {
    const struct window *s = arg;
    const int64_t width = s->plan.columns.in;
    ELEMENT *y = s->out;

    for (struct place at = place_of(&s->plan.rows, &s->plan.columns, begin); begin < end;
         begin++, place_next(&at)) {
        const ELEMENT *x = (const ELEMENT *)s->x + at.plane * s->plan.rows.in * width;
        double sum = 0;
        for (int64_t j = at.rows.first; j < at.rows.last; j++) {
            const ELEMENT *row = x + (at.row + j) * width + at.column;
            double part = 0;
            for (int64_t k = at.columns.first; k < at.columns.last; k++)
                part += LOAD(row[k]);
            sum += part;
        }
        y[begin] = STORE(sum / window_divisor(&s->plan, at.output, at.output_column));
    }
}

static void TYPED(backward)(void *arg, int64_t begin, int64_t end) {
    const struct window *s = arg;
    const struct window_dim *rows = &s->plan.rows, *columns = &s->plan.columns;
    const ELEMENT *grad_y = s->grad_y;
    ELEMENT *grad_x = s->out;
    int64_t column = begin % columns->in, row = begin / columns->in % rows->in;
    int64_t plane = begin / columns->in / rows->in;

    for (; begin < end; begin++) {
        struct window_range r = window_readers(rows, row), c = window_readers(columns, column);
        double sum = 0;
        for (int64_t i = r.first; i < r.last; i++)
            for (int64_t k = c.first; k < c.last; k++) {
                int64_t at = (plane * rows->out + i) * columns->out + k;
                if (!s->plan.max)
                    sum += LOAD(grad_y[at]) / window_divisor(&s->plan, i, k);
                else if (s->found[at] == place_in(s, i, row, k, column))
                    sum += LOAD(grad_y[at]);
            }
        grad_x[begin] = STORE(sum);
        if (++column == columns->in) {
            column = 0;
            if (++row == rows->in) {
                row = 0;
                plane++;
            }
        }
    }
}
