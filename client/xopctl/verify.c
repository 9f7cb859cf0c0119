/* The verb verify: every operator that the daemon offers, against the float64 references. */
#include "verify.h"

#include "lookup.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define MAX_SHAPES 64
#define MAX_SHOWN 5 /* failures told of one subject */
#define DEFAULT_SEED 1

struct verification {
    struct session *session;
    const struct verify_source *source; /* NULL: what the command line and xopctl say */
    const char *reference_name;         /* NULL: the operator's own */
    uint32_t dtypes;                    /* mask; 0: all that the operator has */
    struct {
        uint32_t rank;
        int64_t shape[XOP_MAX_RANK];
    } shapes[MAX_SHAPES];
    uint32_t nshapes;
    uint64_t seed;
    uint32_t passed, failed, skipped;
    json_t *results, *failures, *skips;
    struct verify_worst worst;
    char worst_subject[128];
    bool untried; /* an operator of the source that no case fitted */
    bool gone;    /* the server is */
    bool broken;  /* nothing more is tried */
};

static const char *paint(const struct verification *v, bool good) {
    return !v->session->color ? (good ? "ok  " : "FAIL")
           : good             ? "\033[32mok  \033[0m"
                              : "\033[31mFAIL\033[0m";
}

/* ---- Telling ---- */

static json_t *describe_worst(const struct verify_worst *worst) {
    json_t *ratio = worst->ratio > 1e300 ? json_string("inf") : json_real(worst->ratio);
    char got[40], expected[40];
    if (worst->ratio < 0)
        return json_null();
    snprintf(got, sizeof got, "%.17g", worst->got);
    snprintf(expected, sizeof expected, "%.17g", worst->expected);
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:I}", "ratio", ratio, "got", got, "expected",
                     expected, "inputs", worst->shapes, "operand", worst->operand, "index",
                     (json_int_t)worst->at);
}

static void tell_failure(struct verification *v, const char *subject, const char *what,
                         const char *sentence, uint32_t shown) {
    json_array_append_new(v->failures, json_pack("{s:s, s:s, s:s}", "subject", subject, "case",
                                                 what, "message", sentence));
    if (!v->session->json && shown <= MAX_SHOWN)
        printf("     %s: %s\n", what, sentence);
}

/* Counts one case of a subject. */
static void count(struct verification *v, enum verify_outcome outcome, const char *subject,
                  const char *what, const char *sentence, uint32_t *cases, uint32_t *failed) {
    ++*cases;
    if (outcome == VERIFY_PASSED) {
        v->passed++;
        return;
    }
    v->failed++;
    v->gone |= outcome == VERIFY_BROKEN;
    /* A library that faults does so again, and all that is judged is that library. */
    v->broken |= v->gone || (v->source && outcome == VERIFY_FAULTED);
    if (++*failed == 1 && !v->session->json)
        printf("%s %s\n", paint(v, false), subject);
    tell_failure(v, subject, what, sentence, *failed);
}

static void finish_subject(struct verification *v, const struct verify_subject *s,
                           const char *subject, uint32_t cases, uint32_t failed,
                           const struct verify_worst *worst) {
    if (worst->ratio > v->worst.ratio) {
        v->worst = *worst;
        snprintf(v->worst_subject, sizeof v->worst_subject, "%s", subject);
    }
    json_array_append_new(v->results,
                          json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "op", s->op, "pass",
                                    s->pass == XOP_FORWARD ? "forward" : "backward", "dtype",
                                    xop_dtype_name(s->dtype), "cases", (json_int_t)cases, "failed",
                                    (json_int_t)failed, "worst", describe_worst(worst)));
    if (v->session->json)
        return;
    if (failed > MAX_SHOWN)
        printf("     and %u more\n", failed - MAX_SHOWN);
    if (failed == 0 && worst->ratio < 0)
        printf("%s %-40s %3u cases, without values to compare with\n", paint(v, true), subject,
               cases);
    else if (failed == 0)
        printf("%s %-40s %3u cases, worst %.2f of the tolerance: %s[%lld] is %.9g, expected %.9g, "
               "inputs %s\n",
               paint(v, true), subject, cases, worst->ratio, worst->operand, (long long)worst->at,
               worst->got, worst->expected, worst->shapes);
    else
        printf("     %u of %u cases failed\n", failed, cases);
}

static void skip(struct verification *v, const char *op, const char *why) {
    v->skipped++;
    json_array_append_new(v->skips, json_pack("{s:s, s:s}", "op", op, "reason", why));
    if (!v->session->json)
        printf("skip %s: %s\n", op, why);
}

/* ---- One operator, pass and dtype ---- */

static bool next_case(const struct verification *v, const struct reference *reference, uint32_t n,
                      struct verify_case *what) {
    if (v->nshapes == 0)
        return verify_case_at(reference, n, what);
    if (n >= v->nshapes)
        return false;
    verify_case_of(reference, v->shapes[n].rank, v->shapes[n].shape, what);
    return true;
}

static void progress(const struct verification *v, const char *subject, uint32_t n) {
    if (v->session->progress)
        fprintf(stderr, "\r\033[K%s: case %u", subject, n);
}

static void clear_progress(const struct verification *v) {
    if (v->session->progress)
        fprintf(stderr, "\r\033[K");
}

static void judge_cases(struct verification *v, const struct verify_subject *s, const char *subject,
                        struct verify_worst *worst, uint32_t *cases, uint32_t *failed) {
    struct verify_case what;
    char sentence[1024], name[32];
    for (uint32_t n = 0; !v->broken && next_case(v, s->reference, n, &what); n++) {
        /* Numbers depend on the case alone, so that one case can be repeated. */
        struct random random = {v->seed * 1000003 + n, 0};
        if (!verify_takes(s, &what))
            continue;
        snprintf(name, sizeof name, "case %u", n);
        progress(v, subject, n);
        enum verify_outcome outcome =
            verify_judge(s, &what, &random, worst, sentence, sizeof sentence);
        clear_progress(v);
        count(v, outcome, subject, name, sentence, cases, failed);
    }
}

static void repeat_cases(struct verification *v, const struct verify_subject *s,
                         const char *subject, uint32_t *cases, uint32_t *failed) {
    static const char *const names[] = {"repeated", "repeated, large"};
    static const int64_t shapes[][2] = {{13, 79}, {401, 257}};
    char sentence[1024];
    for (uint32_t i = 0; i < 2 && !v->broken; i++) {
        struct random random = {v->seed * 1000003 + 500000 + i, 0};
        struct verify_case what;
        verify_case_of(s->reference, 2, shapes[i], &what);
        if (s->reference->broadcasts) { /* so that backward has something to sum */
            what.rank[1] = 1;
            what.shape[1][0] = shapes[i][1];
        }
        if (!verify_takes(s, &what))
            continue;
        count(v, verify_repeat(s, &what, &random, sentence, sizeof sentence), subject, names[i],
              sentence, cases, failed);
    }
}

static void difference_cases(struct verification *v, const struct verify_subject *s,
                             const char *subject, struct verify_worst *worst, uint32_t *cases,
                             uint32_t *failed) {
    static const struct {
        uint32_t rank[2];
        int64_t shape[2][2];
    } shapes[] = {{{2, 2}, {{3, 4}, {3, 4}}},
                  {{2, 1}, {{3, 4}, {4, 0}}},
                  {{2, 2}, {{3, 4}, {3, 1}}},
                  {{2, 0}, {{2, 3}, {0, 0}}},
                  {{1, 2}, {{4, 0}, {3, 1}}}};
    char sentence[1024];
    uint32_t n = s->reference->broadcasts ? 5 : 1;
    for (uint32_t i = 0; i < n && !v->broken; i++) {
        struct random random = {v->seed * 1000003 + 600000 + i, 0};
        struct verify_case what;
        verify_case_of(s->reference, shapes[i].rank[0], shapes[i].shape[0], &what);
        for (uint32_t k = 1; k < s->reference->nin && s->reference->broadcasts; k++) {
            what.rank[k] = shapes[i].rank[1];
            memcpy(what.shape[k], shapes[i].shape[1], sizeof shapes[i].shape[1]);
        }
        if (!verify_takes(s, &what))
            continue;
        count(v, verify_differences(s, &what, &random, worst, sentence, sizeof sentence), subject,
              "differences", sentence, cases, failed);
    }
}

#define BAD_INDEX_CASES 4 /* of a setting */

static void bad_index_cases(struct verification *v, const struct verify_subject *s,
                            const char *subject, uint32_t *cases, uint32_t *failed) {
    struct verify_case what;
    char sentence[1024];
    uint32_t tried = 0;
    for (uint32_t n = 0;
         !v->broken && tried < BAD_INDEX_CASES && next_case(v, s->reference, n, &what); n++) {
        struct random random = {v->seed * 1000003 + 700000 + n, 0};
        if (what.is_large || !verify_takes(s, &what) || !verify_has_indices(s, &what))
            continue;
        tried++;
        count(v, verify_bad_indices(s, &what, &random, sentence, sizeof sentence), subject,
              "bad indices", sentence, cases, failed);
    }
}

static void verify_subject(struct verification *v, struct verify_subject *s) {
    struct verify_worst worst = {.ratio = -1}, difference = {.ratio = -1};
    uint32_t cases = 0, failed = 0, n = s->reference->settings ? s->reference->nsettings : 1;
    char subject[128];
    snprintf(subject, sizeof subject, "%s %s %s", s->op,
             s->pass == XOP_FORWARD ? "forward" : "backward", xop_dtype_name(s->dtype));
    if (s->reference->begin)
        s->reference->begin(s->dtype);
    for (uint32_t i = 0; i < n && !v->broken; i++) {
        s->setting = s->reference->settings ? &s->reference->settings[i] : NULL;
        judge_cases(v, s, subject, &worst, &cases, &failed);
        if (v->nshapes > 0)
            continue;
        repeat_cases(v, s, subject, &cases, &failed);
        bad_index_cases(v, s, subject, &cases, &failed);
        if (s->pass == XOP_BACKWARD && s->dtype == XOP_F64 && verify_result_dtype(s) == XOP_F64)
            difference_cases(v, s, subject, &difference, &cases, &failed);
    }
    if (cases == 0 && !v->broken) {
        v->untried |= v->source != NULL;
        skip(v, subject, "its infer refuses the shapes of every case (--shape gives others)");
    } else {
        finish_subject(v, s, subject, cases, failed, &worst);
    }
}

/* ---- One operator ---- */

static void verify_op(struct verification *v, json_t *op) {
    const char *name = lookup_text(op, "name");
    const struct reference *reference = v->reference_name ? reference_find(v->reference_name)
                                        : v->source       ? v->source->find(name)
                                                          : reference_find(name);
    size_t i;
    json_t *dtype;
    uint32_t tried = 0;
    if (!reference) {
        skip(v, name, "there is no reference of that name (--reference judges it by another's)");
        return;
    }
    if (json_array_size(json_object_get(json_object_get(op, "forward"), "inputs")) !=
        reference->nin) {
        skip(v, name, "its inputs are not those of the reference");
        return;
    }
    for (int pass = 0; pass < XOP_PASS_COUNT && !v->broken; pass++) {
        json_t *signature = json_object_get(op, pass == XOP_FORWARD ? "forward" : "backward");
        if (!json_is_object(signature) && reference->ngrad == 0)
            continue; /* it is to have none */
        if (!json_is_object(signature)) {
            skip(v, name, "it has no backward");
            continue;
        }
        json_array_foreach(json_object_get(op, "dtypes"), i, dtype) {
            const char *named = json_string_value(dtype);
            struct verify_subject s = {v->session,
                                       name,
                                       reference,
                                       (enum xop_pass)pass,
                                       value_dtype_named(named, strlen(named)),
                                       signature,
                                       NULL};
            if (value_is_integer(s.dtype) || s.dtype == XOP_DTYPE_NONE ||
                (v->dtypes && !(v->dtypes & XOP_DTYPE_BIT(s.dtype))))
                continue;
            tried++;
            verify_subject(v, &s);
        }
    }
    v->untried |= v->source && tried == 0;
    if (tried == 0)
        skip(v, name, "it has none of the dtypes asked for");
}

/* ---- The verb ---- */

static bool parse_shape(struct verification *v, const char *argument) {
    const char *at = argument;
    if (v->nshapes == MAX_SHAPES)
        return false;
    while (*at) {
        char *end;
        long long n = strtoll(at, &end, 10);
        uint32_t rank = v->shapes[v->nshapes].rank;
        if (end == at || n < 0 || n > (1LL << 40) || (*end && *end != ',') || rank == XOP_MAX_RANK)
            return false;
        v->shapes[v->nshapes].shape[rank] = n;
        v->shapes[v->nshapes].rank++;
        at = *end ? end + 1 : end;
    }
    v->nshapes++;
    return true;
}

static bool parse_dtypes(struct verification *v, const char *at) {
    while (*at) {
        size_t n = strcspn(at, ",");
        enum xop_dtype dtype = value_dtype_named(at, n);
        if (dtype == XOP_DTYPE_NONE)
            return false;
        v->dtypes |= XOP_DTYPE_BIT(dtype);
        at += n + (at[n] == ',');
    }
    return v->dtypes != 0;
}

static int parse(struct verification *v, int argc, char **argv) {
    enum { DTYPE = 1, SHAPE, SEED, REFERENCE, JSON };
    static const struct option options[] = {{"dtype", required_argument, NULL, DTYPE},
                                            {"shape", required_argument, NULL, SHAPE},
                                            {"seed", required_argument, NULL, SEED},
                                            {"reference", required_argument, NULL, REFERENCE},
                                            {"json", no_argument, NULL, JSON},
                                            {NULL, 0, NULL, 0}};
    int c;
    v->seed = DEFAULT_SEED;
    v->worst.ratio = -1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case DTYPE:
            if (!parse_dtypes(v, optarg))
                return session_usage(&verb_verify, "--dtype takes f16, bf16, f32, f64 or several "
                                                   "of them with commas");
            break;
        case SHAPE:
            if (!parse_shape(v, optarg))
                return session_usage(&verb_verify, "--shape takes sizes, as 3,4");
            break;
        case SEED:
            if (!session_count(optarg, 0, INT64_MAX, &v->seed))
                return session_usage(&verb_verify, "--seed takes a number from 0 on");
            break;
        case REFERENCE:
            v->reference_name = optarg;
            if (!reference_find(optarg))
                return session_usage(&verb_verify, "there is no reference \"%s\"", optarg);
            break;
        case JSON: v->session->json = true; break;
        default: return session_usage(&verb_verify, "wrong usage");
        }
    }
    return 0;
}

static json_t *find_op(json_t *list, const char *name) {
    size_t i;
    json_t *op;
    json_array_foreach(list, i, op) if (strcmp(lookup_text(op, "name"), name) == 0) return op;
    return NULL;
}

static int verify_named(struct verification *v, json_t *list, int argc, char **argv) {
    size_t i;
    json_t *op;
    for (int k = optind; k < argc; k++)
        if (!find_op(list, argv[k]))
            return session_fail(v->session, EX_USAGE, XOP_NOT_FOUND,
                                "there is no operator \"%s\" (xopctl ops lists those there are)",
                                argv[k]);
    for (uint32_t k = 0; v->source && k < v->source->nops; k++) {
        if (!(op = find_op(list, v->source->ops[k])))
            return session_fail(v->session, EX_SOFTWARE, XOP_INTERNAL,
                                "the daemon does not offer %s, although it loads",
                                v->source->ops[k]);
        if (!v->broken)
            verify_op(v, op);
    }
    if (v->source)
        return 0;
    if (optind == argc) {
        json_array_foreach(list, i, op) {
            if (!v->broken)
                verify_op(v, op);
        }
    } else {
        for (int k = optind; k < argc && !v->broken; k++)
            verify_op(v, find_op(list, argv[k]));
    }
    return 0;
}

static int report(struct verification *v, json_t *ping) {
    int status = v->failed > 0 || v->untried ? 1 : 0, printed = 0;
    if (v->gone)
        status = EX_UNAVAILABLE;
    if (v->session->json)
        printed = session_print_json(
            json_pack("{s:O, s:O, s:O, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "backend",
                      json_object_get(ping, "backend"), "device", json_object_get(ping, "device"),
                      "fallback_reason", json_object_get(ping, "fallback_reason"), "seed",
                      (json_int_t)v->seed, "results", v->results, "failures", v->failures, "skips",
                      v->skips, "passed", (json_int_t)v->passed, "failed", (json_int_t)v->failed,
                      "skipped", (json_int_t)v->skipped, "worst", describe_worst(&v->worst)));
    else
        printf("%u passed, %u failed, %u skipped; worst %.2f of the tolerance%s%s\n", v->passed,
               v->failed, v->skipped, v->worst.ratio < 0 ? 0 : v->worst.ratio,
               *v->worst_subject ? ", " : "", v->worst_subject);
    return status ? status : printed;
}

int verify_source(struct session *session, int argc, char **argv,
                  const struct verify_source *source) {
    static struct verification v;
    struct xop_result *result;
    v.session = session;
    v.source = source;
    int status = parse(&v, argc, argv);
    if (status || !session_connect(session, &status))
        return status;
    xop_describe(session->client, NULL, &result);
    json_t *document = session_document(session, result, &status);
    json_t *ping = document ? session_ping(session, &status) : NULL;
    if (!ping) {
        json_decref(document);
        return status;
    }
    v.results = json_array();
    v.failures = json_array();
    v.skips = json_array();
    if (!session->json) {
        printf("verify on %s: %s (%s), seed %llu\n", lookup_text(ping, "backend"),
               lookup_text(ping, "device"), lookup_text(ping, "runtime"),
               (unsigned long long)v.seed);
        if (*lookup_text(ping, "fallback_reason"))
            printf("no GPU is used: %s\n", lookup_text(ping, "fallback_reason"));
    }
    status = verify_named(&v, json_object_get(document, "operators"), argc, argv);
    if (status == 0)
        status = report(&v, ping);
    if (status == EX_USAGE || !session->json) {
        json_decref(v.results);
        json_decref(v.failures);
        json_decref(v.skips);
    }
    json_decref(ping);
    json_decref(document);
    return status;
}

static int run(struct session *session, int argc, char **argv) {
    return verify_source(session, argc, argv, NULL);
}

const struct verb verb_verify = {
    .name = "verify",
    .usage = "[OP...] [--dtype D,...] [--shape N,M]... [--seed N] [--reference NAME] [--json]",
    .summary = "judge operators by independent float64 references",
    .details =
        "Runs every operator, or those named, forward and backward through the daemon: sizes\n"
        "around vector widths, empty tensors, ranks 0 to 8, broadcasting, long sums, edge values\n"
        "(NaN, infinities, zeros, denormals, the largest), indices within and out of their range,\n"
        "repeated and batched requests, and\n"
        "backward against central differences, with each of several values of its attributes\n"
        "where an operator has some. An element may be off by the rounding of its\n"
        "dtype, and of a computation in f32 (f64 for f64) in proportion to the terms it sums:\n"
        "  u |y| + c g s + least, u and c the unit roundoff of dtype and computation, s the sum "
        "of\n"
        "  the absolute values of the n terms, least the smallest denormal, and g 2 + 2 log2(n + "
        "1),\n"
        "  or n / (1 - n c) for products of matrices (twice that in f16 and bf16), or 0 for those "
        "of\n"
        "  small whole numbers.\n\n"
        "  --dtype D,...     these dtypes alone\n"
        "  --shape N,M       this shape for every input, instead of the usual ones\n"
        "  --seed N          other random numbers (default 1)\n"
        "  --reference NAME  judge the named operators by this operator's reference\n"
        "  --json            {backend, device, fallback_reason, seed, results, failures, skips,\n"
        "                    passed, failed, skipped, worst}\n\n"
        "The exit status is 0 where all passed, 1 where one failed.\n",
    .run = run,
};
