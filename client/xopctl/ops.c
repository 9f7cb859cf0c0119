#include "lookup.h"
#include "session.h"

#include <getopt.h>
#include <string.h>

static void print_list(json_t *list, const char *separator) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) printf("%s%s", i ? separator : "", json_string_value(item));
}

/* The first line of the documentation, without its marks. */
static void print_summary(const char *doc) {
    for (; *doc && *doc != '\n'; doc++)
        if (*doc != '`')
            putchar(*doc);
}

static void print_operands(const char *title, json_t *list) {
    size_t i;
    json_t *operand;
    json_array_foreach(list, i, operand) {
        printf("  %-8s %-12s %s", i ? "" : title, lookup_text(operand, "name"),
               lookup_text(operand, "doc"));
        if (json_is_true(json_object_get(operand, "optional")))
            printf(" (optional)");
        if (json_is_true(json_object_get(operand, "shape_only")))
            printf(" (shape alone)");
        if (json_is_true(json_object_get(operand, "saved")))
            printf(" (saved for backward)");
        putchar('\n');
    }
}

static void print_pass(const char *name, json_t *pass) {
    if (json_is_null(pass)) {
        printf("\n%s: none\n", name);
        return;
    }
    printf("\n%s\n", name);
    print_operands("inputs", json_object_get(pass, "inputs"));
    print_operands("outputs", json_object_get(pass, "outputs"));
}

static void print_attributes(json_t *list) {
    size_t i;
    json_t *attribute;
    json_array_foreach(list, i, attribute) {
        char *fallback =
            json_dumps(json_object_get(attribute, "default"), JSON_ENCODE_ANY | JSON_COMPACT);
        printf("%s  %-12s %-7s %s", i ? "" : "\nattributes\n", lookup_text(attribute, "name"),
               lookup_text(attribute, "type"), lookup_text(attribute, "doc"));
        if (json_is_true(json_object_get(attribute, "required")))
            printf(" (required)\n");
        else
            printf(" (default %s)\n", fallback ? fallback : "none");
        free(fallback);
    }
}

static void print_one(json_t *op) {
    printf("%s\n\n%s\ndtypes: ", lookup_text(op, "name"), lookup_text(op, "doc"));
    print_list(json_object_get(op, "dtypes"), ", ");
    putchar('\n');
    print_attributes(json_object_get(op, "attributes"));
    print_pass("forward", json_object_get(op, "forward"));
    print_pass("backward", json_object_get(op, "backward"));
}

static void print_all(json_t *document) {
    size_t i;
    json_t *op;
    printf("on %s: %s\n", lookup_text(document, "backend"), lookup_text(document, "device"));
    json_array_foreach(json_object_get(document, "operators"), i, op) {
        printf("%-24s ", lookup_text(op, "name"));
        print_summary(lookup_text(op, "doc"));
        printf(json_is_null(json_object_get(op, "backward")) ? " (no backward)\n" : "\n");
    }
}

/* Inputs and outputs as they are for most: those of forward, with the passes beside them. */
static json_t *flatten(json_t *document) {
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(document, "operators"), i, op) {
        json_t *forward = json_object_get(op, "forward");
        json_object_set(op, "inputs", json_object_get(forward, "inputs"));
        json_object_set(op, "outputs", json_object_get(forward, "outputs"));
    }
    return document;
}

static int run(struct session *session, int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    struct xop_result *result;
    int c, status = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c != 'j')
            return session_usage(&verb_ops, "wrong usage");
        session->json = true;
    }
    if (argc - optind > 1)
        return session_usage(&verb_ops, "one operator at a time");
    const char *name = optind < argc ? argv[optind] : NULL;
    if (!session_connect(session, &status))
        return status;
    xop_describe(session->client, name, &result);
    json_t *document = session_document(session, result, &status);
    if (!document)
        return status;
    if (session->json)
        return session_print_json(flatten(document));
    if (name)
        print_one(json_array_get(json_object_get(document, "operators"), 0));
    else
        print_all(document);
    json_decref(document);
    return 0;
}

const struct verb verb_ops = {
    .name = "ops",
    .usage = "[OP] [--json]",
    .summary = "list what the daemon offers, or one operator with its documentation",
    .details = "  --json   {backend, device, operators: [{name, doc, inputs, outputs, attributes,\n"
               "           dtypes, forward, backward}]}\n",
    .run = run,
};
