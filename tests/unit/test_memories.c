/* daemon/worker/memories.c and what intake.c makes of operands that lie in them. */
#include "daemon/worker/helper.h"
#include "worker_fixture.h"

#include <fcntl.h>

enum { BYTES = 8192 };

/* ---- Asking ---- */

static struct seam_request *ask_memory(uint32_t index, enum seam_kind kind,
                                       struct seam_memory memory) {
    struct seam_request *r = fill(index, 0, 1);
    r->kind = (uint8_t)kind;
    r->memory = memory;
    r->nin = 0;
    submit(index);
    return r;
}

static struct seam_result *done(uint32_t index) {
    uint32_t got;
    struct seam_result *result = next(&got);
    assert_int_equal(got, index);
    return result;
}

static void expect_ok(const struct seam_result *result) {
    if (result->status != XOP_OK)
        fail_msg("%s", result->message);
}

static void give_descriptor(struct seam_memory memory, int fd) {
    struct seam_control head = {SEAM_GIVE, sizeof memory};
    struct xop_error error;
    assert_int_equal(
        channel_send(front.control, &head, sizeof head, &memory, sizeof memory, &fd, 1, &error),
        XOP_OK);
}

static struct seam_memory client_memory(uint64_t number, uint32_t flags) {
    return (struct seam_memory){number, BYTES, SEAM_CLIENT, flags};
}

static struct seam_memory device_memory(uint64_t number, uint32_t flags) {
    return (struct seam_memory){number, BYTES, SEAM_DEVICE, flags};
}

/* A client's memory, adopted; its bytes as the client sees them. */
static float *adopt_client(uint64_t number, uint32_t flags) {
    int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    float *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    give_descriptor(client_memory(number, flags), fd);
    close(fd);
    ask_memory(0, SEAM_ADOPT, client_memory(number, flags));
    struct seam_result *result = done(0);
    expect_ok(result);
    assert_int_equal(result->bytes, BYTES);
    return data;
}

static void adopt_device(uint64_t number, uint32_t flags) {
    ask_memory(0, SEAM_ADOPT, device_memory(number, flags));
    struct seam_result *result = done(0);
    expect_ok(result);
    assert_int_equal(result->bytes, FAKE_PAGE); /* of the whole */
}

static struct seam_tensor at(uint64_t memory, uint64_t offset, int64_t n) {
    return (struct seam_tensor){.dtype = XOP_F32,
                                .rank = 1,
                                .place = SEAM_MEMORY,
                                .memory = memory,
                                .offset = offset,
                                .shape = {n}};
}

/* A request of op with these operands. */
static struct seam_request *fill_run(uint32_t index, uint32_t op, struct seam_tensor in,
                                     struct seam_tensor out) {
    struct seam_request *r = fill(index, op, 1);
    struct seam_tensor list[] = {in, out};
    r->nout = 1;
    memcpy(r->arguments, list, sizeof list);
    return r;
}

/* ---- What holds ---- */

static void a_clients_memory_is_read_and_written(void **state) {
    (void)state;
    float *data = adopt_client(5, SEAM_WRITABLE);
    for (int i = 0; i < 100; i++)
        data[i] = (float)i;
    fill_run(1, 0, at(5, 0, 100), at(5, 4096, 100));
    submit(1);
    struct seam_result *result = done(1);
    expect_ok(result);
    assert_int_equal(result->out[0].place, SEAM_MEMORY);
    assert_int_equal(result->out[0].shape[0], 100);
    assert_int_equal(result->block_bytes, 0);
    assert_true(data[1024] == 1 && data[1123] == 100);
    munmap(data, BYTES);
}

static void what_is_released_is_unknown(void **state) {
    (void)state;
    munmap(adopt_client(5, SEAM_WRITABLE), BYTES);
    assert_int_equal(fake.registered, 1);
    ask_memory(0, SEAM_RELEASE, client_memory(5, 0));
    expect_ok(done(0));
    assert_int_equal(fake.registered, 0);
    fill_run(1, 0, at(5, 0, 1), at(5, 0, 1));
    submit(1);
    expect_error(1, XOP_INTERNAL, "a memory that is not adopted");
    ask_memory(0, SEAM_RELEASE, client_memory(5, 0)); /* as was asked */
    expect_ok(done(0));
}

static void a_range_outside_and_a_place_to_read_only_are_refused(void **state) {
    (void)state;
    munmap(adopt_client(5, 0), BYTES);
    munmap(adopt_client(6, SEAM_WRITABLE), BYTES);
    fill_run(1, 0, at(5, 0, 1), at(5, 4096, 1));
    submit(1);
    expect_error(1, XOP_INTERNAL, "not to be written");
    fill_run(1, 0, at(5, BYTES - 4, 2), at(6, 0, 2));
    submit(1);
    expect_error(1, XOP_INTERNAL, "outside its memory");
    fill_run(1, 0, at(5, UINT64_MAX - 3, 2), at(6, 0, 2));
    submit(1);
    expect_error(1, XOP_INTERNAL, "outside its memory");
    fill_run(1, 0, at(5, 2, 2), at(6, 0, 2));
    submit(1);
    expect_error(1, XOP_INTERNAL, "not aligned");
    fill_run(1, 0, at(6, 0, 8), at(6, 16, 8));
    submit(1);
    expect_error(1, XOP_INVALID_ARGUMENT, "output y of good would overlap its input x");
}

static void what_is_no_memory_of_a_clients_is_not_adopted(void **state) {
    (void)state;
    ask_memory(0, SEAM_ADOPT, client_memory(5, 0)); /* no descriptor came */
    expect_error(0, XOP_INTERNAL, "cannot be adopted");
    int fd = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    give_descriptor(client_memory(5, 0), fd);
    ask_memory(0, SEAM_ADOPT, client_memory(5, 0));
    expect_error(0, XOP_INVALID_ARGUMENT, "sealed against shrinking");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
    give_descriptor(client_memory(5, SEAM_WRITABLE), fd);
    ask_memory(0, SEAM_ADOPT, client_memory(5, SEAM_WRITABLE));
    expect_error(0, XOP_INVALID_ARGUMENT, "sealed against writing");
    pthread_mutex_lock(&fake.lock);
    fake.refuse = true;
    pthread_mutex_unlock(&fake.lock);
    give_descriptor(client_memory(5, 0), fd);
    ask_memory(0, SEAM_ADOPT, client_memory(5, 0));
    expect_error(0, XOP_RESOURCE_EXHAUSTED, "no more of it");
    pthread_mutex_lock(&fake.lock);
    fake.refuse = false;
    pthread_mutex_unlock(&fake.lock);
    give_descriptor(client_memory(5, 0), fd); /* its number is still free */
    ask_memory(0, SEAM_ADOPT, client_memory(5, 0));
    expect_ok(done(0));
    ask_memory(0, SEAM_ADOPT, client_memory(5, 0));
    expect_error(0, XOP_INTERNAL, "cannot be adopted"); /* it is already */
    close(fd);
}

static void the_devices_memory_outlives_the_worker(void **state) {
    (void)state;
    adopt_device(7, 0);
    assert_int_equal(fake.made, 1);
    memset(front.inbox, 0, 4096);
    float *in = (float *)front.inbox;
    for (int i = 0; i < 100; i++)
        in[i] = (float)i;
    struct seam_tensor from = {.dtype = XOP_F32, .rank = 1, .place = SEAM_INBOX, .shape = {100}};
    fill_run(1, 0, from, at(7, 64, 100));
    submit(1);
    expect_ok(done(1));
    /* Another worker, which knows the keeper alone. */
    struct keeper kept = front.keeper;
    front.keeper.kept = (struct table){0};
    stop(NULL);
    start(NULL);
    stop_keeper();
    front.keeper = kept;
    assert_int_equal(start_keeper(), 0);
    adopt_device(7, SEAM_MUST_BE);
    assert_int_equal(fake.made, 0);
    struct seam_request *r = fill_run(1, 0, at(7, 64, 100), (struct seam_tensor){0});
    r->kind = SEAM_COPY;
    ((struct seam_tensor *)(void *)r->arguments)[1] = (struct seam_tensor){.place = SEAM_OUTBOX};
    submit(1);
    struct seam_result *result = done(1);
    expect_ok(result);
    const float *out = (const float *)(front.worker.outbox.base + result->out[0].offset);
    assert_true(out[0] == 1 && out[99] == 100);
    /* And once it is released, nobody has it. */
    ask_memory(0, SEAM_RELEASE, device_memory(7, 0));
    expect_ok(done(0));
    ask_memory(0, SEAM_ADOPT, device_memory(7, SEAM_MUST_BE));
    expect_error(0, XOP_DATA_LOSS, "was lost");
}

static void a_memory_that_cannot_be_made_is_told(void **state) {
    (void)state;
    fake.refuse = true;
    ask_memory(0, SEAM_ADOPT, device_memory(7, 0));
    expect_error(0, XOP_RESOURCE_EXHAUSTED, "no more of it");
    pthread_mutex_lock(&fake.lock);
    fake.refuse = false;
    pthread_mutex_unlock(&fake.lock);
    front.keeper.most = 0; /* the keeper has no room: what was made is let go */
    ask_memory(0, SEAM_ADOPT, device_memory(7, 0));
    expect_error(0, XOP_RESOURCE_EXHAUSTED, "cannot keep another memory");
    assert_int_equal(fake.mapped, 0);
    front.keeper.most = 100;
    adopt_device(7, 0);
}

static void an_exports_descriptor_comes_before_its_completion(void **state) {
    unsigned char packet[CHANNEL_BYTES];
    struct xop_error error;
    uint32_t nfds;
    size_t bytes;
    bool would_block;
    int fd = -1;
    (void)state;
    adopt_device(7, SEAM_EXPORT | SEAM_ZEROED);
    assert_int_equal(
        channel_receive(front.control, packet, &bytes, &fd, 1, &nfds, &would_block, &error),
        XOP_OK);
    struct seam_memory memory;
    memcpy(&memory, packet + sizeof(struct seam_control), sizeof memory);
    assert_int_equal(memory.number, 7);
    assert_true(fd >= 0);
    close(fd);
}

static void operands_are_kept(void **state) {
    (void)state;
    adopt_device(7, 0);
    float *client = adopt_client(5, SEAM_WRITABLE);
    client[0] = 41;
    struct seam_tensor in = at(5, 0, 1), out = {.place = SEAM_NOWHERE};
    in.keep_memory = out.keep_memory = 7;
    in.keep_offset = 256;
    out.keep_offset = 512;
    fill_run(1, 0, in, out); /* y is not wanted, but kept: computed where it is kept */
    submit(1);
    struct seam_result *result = done(1);
    expect_ok(result);
    assert_int_equal(result->out[0].place, SEAM_NOWHERE);
    for (uint64_t offset = 256; offset <= 512; offset += 256) {
        struct seam_request *r = fill_run(2, 0, at(7, offset, 1), at(5, 64, 1));
        r->kind = SEAM_COPY;
        submit(2);
        expect_ok(done(2));
        assert_true(client[16] == (offset == 256 ? 41 : 42));
    }
    in.keep_offset = FAKE_PAGE;
    fill_run(1, 0, in, out);
    submit(1);
    expect_error(1, XOP_INTERNAL, "outside its memory");
    /* What one request kept the next one in the same record does not. */
    fill_run(1, 0, at(5, 0, 1), at(5, 64, 1));
    submit(1);
    expect_ok(done(1));
    munmap(client, BYTES);
}

static void shapes_are_told_without_running(void **state) {
    (void)state;
    fill(1, 0, 250000)->flags = SEAM_SHAPES; /* more than the outbox takes */
    submit(1);
    struct seam_result *result = done(1);
    expect_ok(result);
    assert_int_equal(result->nout, 1);
    assert_int_equal(result->out[0].place, SEAM_NOWHERE);
    assert_int_equal(result->out[0].dtype, XOP_F32);
    assert_int_equal(result->out[0].shape[0], 250000);
    assert_int_equal(result->launched, 0);
    assert_int_equal(submitted(), 0);
}

static void what_nobody_waits_for_is_not_launched(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    for (uint32_t i = 0; i < 2; i++) {
        fill(i, 0, 10), submit(i);
        wait_submitted(i + 1);
    }
    struct seam_request *r = fill(2, 0, 10);
    fill(3, 0, 10);
    submit(2), submit(3);
    wait_rounds();
    atomic_store(&r->dropped, 1);
    set_hold(false);
    for (int i = 0; i < 4; i++) {
        struct seam_result *result = next(&index);
        assert_int_equal(result->status, index == 2 ? XOP_CANCELLED : XOP_OK);
        assert_int_equal(result->launched, index != 2);
    }
}

static void large_ones_leave_a_lane(void **state) {
    uint32_t index;
    (void)state;
    set_hold(true);
    /* Two megabytes in memory, so that their launches are large and their outputs nowhere. */
    struct seam_memory large = {9, 16 << 20, SEAM_DEVICE, 0};
    ask_memory(0, SEAM_ADOPT, large);
    expect_ok(done(0));
    for (uint32_t i = 0; i < 2; i++) {
        fill_run(i, 0, at(9, 0, 1 << 20), at(9, (4 + 4 * i) << 20, 1 << 20));
        submit(i);
    }
    wait_rounds();
    assert_int_equal(submitted(), 1); /* half of LANES_OF_BACKEND */
    fill(2, 0, 10), submit(2);
    wait_rounds();
    assert_int_equal(submitted(), 2);
    set_hold(false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(next(&index)->status, XOP_OK);
}

static void the_device_is_timed(void **state) {
    (void)state;
    struct seam_request *r = fill(1, 0, 1);
    r->kind = SEAM_PROBE;
    r->nin = 0;
    r->bytes_in = 100;
    r->bytes_out = 10;
    submit(1);
    struct seam_result *result = done(1);
    expect_ok(result);
    assert_int_equal(result->probe.launch_ns, 1);
    assert_int_equal(result->probe.direct_ns, 100);
    assert_int_equal(result->probe.copy_ns, 10);
    assert_int_equal(result->probe.device_ns, 110);
}

static void set_stall(bool stall) {
    pthread_mutex_lock(&fake.lock);
    fake.stall = stall;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

static void wait_stalled(void) {
    pthread_mutex_lock(&fake.lock);
    while (!fake.stalled)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
}

static void a_job_that_hangs_is_seen(void **state) {
    (void)state;
    struct seam_request *r = fill(1, 0, 1);
    r->kind = SEAM_PROBE;
    r->nin = 0;
    set_stall(true);
    submit(1);
    wait_stalled();
    uint64_t now = worker_now(), hour = UINT64_C(3600000000000);
    assert_false(helper_hangs(&front.worker, now));
    assert_true(helper_hangs(&front.worker, now + hour));
    set_stall(false);
    expect_ok(done(1));
    assert_false(helper_hangs(&front.worker, now + hour));
}

static void a_device_lost_while_making_memory_ends_the_loop(void **state) {
    (void)state;
    fake.faults = true;
    ask_memory(1, SEAM_ADOPT, device_memory(7, 0));
    pthread_join(front.thread, NULL);
    assert_int_equal(front.ended, XOP_DEVICE_FAULT);
    assert_int_equal(ring_waiting(&front.lane.complete), 0); /* the next worker is asked again */
    front.worker.lost.status = XOP_OK;
    pthread_create(&front.thread, NULL, run_loop, NULL); /* for the teardown */
}

static void a_kind_that_there_is_not_is_refused(void **state) {
    (void)state;
    fill(1, 0, 1)->kind = SEAM_PROBE + 1;
    submit(1);
    expect_error(1, XOP_INTERNAL, "a kind that there is not");
    ask_memory(1, SEAM_ADOPT, device_memory(0, 0));
    expect_error(1, XOP_INTERNAL, "cannot be adopted");
    ask_memory(1, SEAM_ADOPT, (struct seam_memory){3, BYTES, 77, 0});
    expect_error(1, XOP_INTERNAL, "cannot be adopted");
    ask_memory(1, SEAM_RELEASE, device_memory(0, 0));
    expect_error(1, XOP_INTERNAL, "cannot be released");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_clients_memory_is_read_and_written),
        TEST(what_is_released_is_unknown),
        TEST(a_range_outside_and_a_place_to_read_only_are_refused),
        TEST(what_is_no_memory_of_a_clients_is_not_adopted),
        TEST(the_devices_memory_outlives_the_worker),
        TEST(a_memory_that_cannot_be_made_is_told),
        TEST(an_exports_descriptor_comes_before_its_completion),
        TEST(operands_are_kept),
        TEST(shapes_are_told_without_running),
        TEST(what_nobody_waits_for_is_not_launched),
        TEST(large_ones_leave_a_lane),
        TEST(the_device_is_timed),
        TEST(a_job_that_hangs_is_seen),
        TEST(a_device_lost_while_making_memory_ends_the_loop),
        TEST(a_kind_that_there_is_not_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
