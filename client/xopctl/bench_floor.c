/* The floor: what the bare device takes for a request's bytes. */
#include "bench.h"

static double smaller(double known, double found) {
    return known > 0 && (found <= 0 || known < found) ? known : found;
}

void bench_floor_probe(struct session *session, const struct bench_work *work,
                       struct bench_floor *floor) {
    struct xop_result *result;
    json_error_t wrong;
    xop_probe(session->client, work->bytes_in, work->bytes_out, &result);
    if (!result || result->error.status != XOP_OK) {
        snprintf(floor->why, sizeof floor->why, "%.250s",
                 result ? result->error.message : "out of memory");
        xop_result_free(result);
        return;
    }
    json_t *document = json_loads(result->text ? result->text : "", 0, &wrong);
    floor->direct_ns =
        smaller(floor->direct_ns, json_number_value(json_object_get(document, "direct_ns")));
    floor->device_ns =
        smaller(floor->device_ns, json_number_value(json_object_get(document, "device_ns")));
    if (!document)
        snprintf(floor->why, sizeof floor->why, "the server's document is no JSON");
    else if (floor->direct_ns <= 0 && floor->device_ns <= 0)
        snprintf(floor->why, sizeof floor->why, "the server's device has none to tell");
    json_decref(document);
    xop_result_free(result);
}

/* A device without memory of its own, the CPU, keeps residents in the host's. */
double bench_floor_of(const struct bench_floor *floor, enum bench_path path) {
    return path == BENCH_RESIDENT && floor->device_ns > 0 ? floor->device_ns : floor->direct_ns;
}
