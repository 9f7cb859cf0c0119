/*
 * One element's step, for both backends. Included once for each type computed in, after the
 * definition of
 *
 *     R           the type
 *     FUNCTION    what precedes a function: static inline, or static __device__
 *     F(f)        the name of f for this type
 *     SQRT(x)     its square root, rounded correctly
 *
 * Operations come in PyTorch's order, each rounded, so that both backends give the same bits. No
 * include guard.
 */

/* A step's numbers in the type computed in. */
struct F(optimizer) {
    R lr, weight_decay, momentum, undamped, beta1, beta2, eps, rest1, rest2, kept, step_size,
        correction_root;
    bool maximize, nesterov, begins, amsgrad, decays, remembers, apart;
};

FUNCTION struct F(optimizer) F(optimizer_of)(const struct optimizer_step *step) {
    const struct optimizer_numbers *n = &step->number;
    struct F(optimizer) o;
    o.lr = (R)n->lr;
    o.weight_decay = (R)n->weight_decay;
    o.momentum = (R)n->momentum;
    o.undamped = (R)n->undamped;
    o.beta1 = (R)n->beta1;
    o.beta2 = (R)n->beta2;
    o.eps = (R)n->eps;
    o.rest1 = (R)n->rest1;
    o.rest2 = (R)n->rest2;
    o.kept = (R)n->kept;
    o.step_size = (R)n->step_size;
    o.correction_root = (R)n->correction_root;
    o.maximize = (step->flags & OPTIMIZER_MAXIMIZE) != 0;
    o.nesterov = (step->flags & OPTIMIZER_NESTEROV) != 0;
    o.begins = (step->flags & OPTIMIZER_BEGINS) != 0;
    o.amsgrad = (step->flags & OPTIMIZER_AMSGRAD) != 0;
    o.remembers = n->momentum != 0;
    o.apart = step->kind == OPTIMIZER_ADAMW;
    o.decays = !o.apart && n->weight_decay != 0; /* else an infinite parameter would be NaN */
    return o;
}

FUNCTION void F(optimizer_sgd)(const struct F(optimizer) * o, R *param, R *buffer, R grad) {
    R g = o->maximize ? -grad : grad;
    if (o->decays)
        g = g + o->weight_decay * *param;
    if (o->remembers) {
        *buffer = o->begins ? g : o->momentum * *buffer + o->undamped * g;
        g = o->nesterov ? g + o->momentum * *buffer : *buffer;
    }
    *param = *param + -o->lr * g;
}

FUNCTION void F(optimizer_adam)(const struct F(optimizer) * o, R *param, R *first, R *second,
                                R *largest, R grad) {
    R g = o->maximize ? -grad : grad, square;
    if (o->apart)
        *param = *param * o->kept;
    else if (o->decays)
        g = g + o->weight_decay * *param;
    *first = o->beta1 * *first + o->rest1 * g;
    *second = o->beta2 * *second + o->rest2 * g * g;
    square = *second;
    if (o->amsgrad) {
        if (!(*largest != *largest || *largest > square)) /* NaN stays */
            *largest = square;
        square = *largest;
    }
    *param = *param + -o->step_size * *first / (SQRT(square) / o->correction_root + o->eps);
}
