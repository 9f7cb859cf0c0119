/* client/xopctl: values, literals, .npy and .safetensors, and printing as NumPy does. */
#include "client/xopctl/literal.h"
#include "client/xopctl/npy.h"
#include "client/xopctl/print.h"
#include "client/xopctl/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum xop_status read_bytes(const void *bytes, size_t n, bool bf16, struct value *value,
                                  struct xop_error *error) {
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    rewind(file);
    enum xop_status status = npy_read(file, bf16, value, error);
    fclose(file);
    return status;
}

/* A version 1 file with this header and data. */
static enum xop_status read_npy(const char *header, const void *data, size_t n, bool bf16,
                                struct value *value, struct xop_error *error) {
    unsigned char bytes[1024] = "\x93NUMPY\x01\x00";
    size_t length = strlen(header);
    bytes[8] = (unsigned char)(length & 0xff);
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + 10, header, length);
    if (n > 0)
        memcpy(bytes + 10 + length, data, n);
    return read_bytes(bytes, 10 + length + n, bf16, value, error);
}

static void rounding_is_to_nearest_even(void **state) {
    (void)state;
    assert_true(value_round(XOP_F16, 2049) == 2048);
    assert_true(value_round(XOP_F16, 2051) == 2052);
    assert_true(value_round(XOP_F16, 65519.99) == 65504);
    assert_true(isinf(value_round(XOP_F16, 65520)));
    assert_true(value_round(XOP_F16, ldexp(1, -25)) == 0);
    assert_true(value_round(XOP_F16, ldexp(1.0001, -25)) == ldexp(1, -24));
    assert_true(value_round(XOP_BF16, 257) == 256);
    assert_true(value_round(XOP_BF16, 259) == 260);
    assert_true(value_round(XOP_F32, 16777217) == 16777216);
    assert_true(signbit(value_round(XOP_F16, -1e-30)));
}

static void all_half_floats_survive(void **state) {
    static const enum xop_dtype dtypes[] = {XOP_F16, XOP_BF16};
    int64_t shape = 65536;
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct value value;
        struct xop_error error;
        assert_int_equal(value_new(&value, dtypes[d], 1, &shape, &error), XOP_OK);
        uint16_t *bits = value.tensor.data;
        for (int i = 0; i < 65536; i++)
            bits[i] = (uint16_t)i;
        for (int i = 0; i < 65536; i++) {
            double x = value_get(&value, i);
            value_set(&value, i, x);
            if (isnan(x))
                assert_true(isnan(value_get(&value, i)));
            else
                assert_int_equal(bits[i], i);
        }
        value_free(&value);
    }
}

static void npy_files_are_read(void **state) {
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    struct value value;
    struct xop_error error;
    (void)state;
    assert_int_equal(read_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }     \n",
                              data, sizeof data, false, &value, &error),
                     XOP_OK);
    assert_int_equal(value.tensor.rank, 2);
    assert_memory_equal(value.tensor.data, data, sizeof data);
    value_free(&value);
    /* Columns first. */
    assert_int_equal(read_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", data,
                              sizeof data, false, &value, &error),
                     XOP_OK);
    static const float turned[6] = {1, 3, 5, 2, 4, 6};
    assert_memory_equal(value.tensor.data, turned, sizeof turned);
    value_free(&value);
    static const unsigned char big[8] = {0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe};
    assert_int_equal(read_npy("{\"shape\": (2,), 'descr': '>i4', 'fortran_order': False}", big, 8,
                              false, &value, &error),
                     XOP_OK);
    assert_int_equal(value_get_integer(&value, 0), 1);
    assert_int_equal(value_get_integer(&value, 1), -2);
    value_free(&value);
    assert_int_equal(read_npy("{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
                              "\0\0\0\0\0\0\xf0\x3f", 8, false, &value, &error),
                     XOP_OK);
    assert_true(value.tensor.rank == 0 && value_get(&value, 0) == 1);
    value_free(&value);
    assert_int_equal(read_npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", "\x80\x3f",
                              2, true, &value, &error),
                     XOP_OK);
    assert_true(value.tensor.dtype == XOP_BF16 && value_get(&value, 0) == 1);
    value_free(&value);
}

static void bad_npy_files_say_what_is_wrong(void **state) {
    static const struct {
        const char *header, *expected;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9,)}", "ends too early"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,)}",
         "not possible"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3000000000, 3000000000)}",
         "not possible"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", "ends too early"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "tuple of sizes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "8 dimensions"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "pickled"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "<c8"},
        {"{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", "--dtype bf16"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "structured"},
        {"{'descr': '<f4', 'shape': (1,)}", "lacks"},
        {"{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", "True nor False"},
        {"'descr'", "no dict"},
        {"{'descr' '<f4'}", "no dict"},
        {"", "no dict"},
    };
    struct value value;
    struct xop_error error;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error.message[0] = 0;
        assert_int_equal(read_npy(cases[i].header, "1234", 4, false, &value, &error),
                         XOP_INVALID_ARGUMENT);
        if (!strstr(error.message, cases[i].expected))
            fail_msg("%s: %s", cases[i].header, error.message);
    }
    assert_int_equal(read_bytes("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13, false, &value, &error),
                     XOP_INVALID_ARGUMENT);
    assert_int_equal(read_bytes("PK\3\4aaaaaaaa", 12, false, &value, &error), XOP_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, ".npz"));
    assert_int_equal(read_bytes("", 0, false, &value, &error), XOP_INVALID_ARGUMENT);
}

static void files_survive_writing_and_reading(void **state) {
    static const int64_t shape[] = {3, 5};
    (void)state;
    for (int dtype = 1; dtype < XOP_DTYPE_COUNT; dtype++)
        for (int format = 0; format < 2; format++) {
            struct value value, got;
            struct xop_error error;
            FILE *file = tmpfile();
            assert_int_equal(value_new(&value, (enum xop_dtype)dtype, 2, shape, &error), XOP_OK);
            for (int i = 0; i < 15; i++)
                value_set(&value, i, i - 7);
            assert_int_equal(format ? safetensors_write(file, "t", &value, &error)
                                    : npy_write(file, &value, &error),
                             XOP_OK);
            rewind(file);
            assert_int_equal(format ? safetensors_read(file, NULL, &got, &error)
                                    : npy_read(file, true, &got, &error),
                             XOP_OK);
            assert_int_equal(got.tensor.dtype, dtype);
            assert_int_equal(got.tensor.shape[1], 5);
            assert_memory_equal(got.tensor.data, value.tensor.data, value.bytes);
            value_free(&got);
            value_free(&value);
            fclose(file);
        }
}

static void bad_safetensors_files_are_refused(void **state) {
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}} ",
        "{\"a\":{\"dtype\":\"F8\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[100,104]}}",
        "{\"a\":1}",
        "[]",
        "{",
        "{}",
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct value value;
        struct xop_error error;
        uint64_t n = strlen(headers[i]);
        FILE *file = tmpfile();
        fwrite(&n, 8, 1, file);
        fwrite(headers[i], 1, n, file);
        fwrite("1234", 1, 4, file);
        rewind(file);
        assert_int_equal(safetensors_read(file, NULL, &value, &error), XOP_INVALID_ARGUMENT);
        fclose(file);
    }
}

static void literals_are_read(void **state) {
    struct value value;
    struct xop_error error;
    (void)state;
    assert_int_equal(literal_read("f32:[[1, 2.5], [nan, -inf]]", &value, &error), XOP_OK);
    assert_int_equal(value.tensor.rank, 2);
    assert_true(value_get(&value, 1) == 2.5 && isnan(value_get(&value, 2)));
    value_free(&value);
    assert_int_equal(literal_read("i64:-9223372036854775808", &value, &error), XOP_OK);
    assert_int_equal(value.tensor.rank, 0);
    assert_true(value_get_integer(&value, 0) == INT64_MIN);
    value_free(&value);
    assert_int_equal(literal_read("f64:[]", &value, &error), XOP_OK);
    assert_true(value.tensor.rank == 1 && value.n == 0);
    value_free(&value);
    assert_int_equal(literal_read("f64:[[],[]]", &value, &error), XOP_OK);
    assert_true(value.tensor.rank == 2 && value.tensor.shape[0] == 2 && value.n == 0);
    value_free(&value);
    static const char *const wrong[] = {
        "f32:",         "f32:[1,2",        "f32:[1,[2]]",
        "f32:[[1],2]",  "f32:[[1],[2,3]]", "f32:[1]x",
        "f32:a",        "i32:1.5",         "f32:[[[[[[[[[1]]]]]]]]]",
        "f32:[[],[1]]", "f32:[,]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (literal_read(wrong[i], &value, &error) != XOP_INVALID_ARGUMENT)
            fail_msg("%s is taken", wrong[i]);
    assert_false(literal_is("x.npy"));
    assert_false(literal_is("f99:1"));
}

/* The expected strings are what NumPy 1.24 prints. */
static void tensors_print_as_numpy_does(void **state) {
    static const struct {
        const char *literal, *expected;
    } cases[] = {
        {"f32:[1,2,3]", "[1. 2. 3.]"},
        {"f32:[1,2.5,-3]", "[ 1.   2.5 -3. ]"},
        {"f64:[0.1,0.25,100]", "[  0.1    0.25 100.  ]"},
        {"f64:[0.1,0.25,10]", "[ 0.1   0.25 10.  ]"},
        {"f32:[0.1,0.3333333433]", "[0.1        0.33333334]"},
        {"f64:[0.3333333333333333]", "[0.33333333]"},
        {"f32:[nan,inf,-inf,1]", "[ nan  inf -inf   1.]"},
        {"f32:[nan]", "[nan]"},
        {"f32:[1e10,1]", "[1.e+10 1.e+00]"},
        {"f64:[1.5e-5,1]", "[1.5e-05 1.0e+00]"},
        {"f64:[1e100,-1e-100,nan]", "[ 1.e+100 -1.e-100      nan]"},
        {"i32:[1,-20,300]", "[  1 -20 300]"},
        {"f32:[[1,2],[3,4]]", "[[1. 2.]\n [3. 4.]]"},
        {"f32:[[[1],[2]],[[3],[4]]]", "[[[1.]\n  [2.]]\n\n [[3.]\n  [4.]]]"},
        {"f32:[]", "[]"},
        {"f64:2", "2.0"},
        {"f64:0.1", "0.1"},
        {"f32:0.1", "0.1"},
        {"i64:7", "7"},
        {"f64:nan", "nan"},
        {"f32:[0,-0]", "[ 0. -0.]"},
        {"f16:[0.1,65504]", "[1.00e-01 6.55e+04]"},
        {"f64:[1e100,1]", "[1.e+100 1.e+000]"},
        {"f64:1e20", "1e+20"},
        {"f32:123456789", "123456790.0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct value value;
        struct xop_error error;
        assert_int_equal(literal_read(cases[i].literal, &value, &error), XOP_OK);
        char *got = print_value(&value);
        if (!got || strcmp(got, cases[i].expected) != 0)
            fail_msg("%s prints as\n%s\nnot\n%s", cases[i].literal, got, cases[i].expected);
        free(got);
        value_free(&value);
    }
}

static void long_arrays_are_shortened_and_wrapped(void **state) {
    static const int64_t n = 1001, m = 30;
    struct value value;
    struct xop_error error;
    (void)state;
    assert_int_equal(value_new(&value, XOP_F32, 1, &n, &error), XOP_OK);
    for (int i = 0; i < n; i++)
        value_set(&value, i, i);
    char *got = print_value(&value);
    assert_string_equal(got, "[   0.    1.    2. ...  998.  999. 1000.]");
    free(got);
    value_free(&value);
    assert_int_equal(value_new(&value, XOP_I64, 1, &m, &error), XOP_OK);
    for (int i = 0; i < m; i++)
        value_set_integer(&value, i, i);
    got = print_value(&value);
    assert_string_equal(got,
                        "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 "
                        "23\n 24 25 26 27 28 29]");
    free(got);
    value_free(&value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(all_half_floats_survive),
        cmocka_unit_test(npy_files_are_read),
        cmocka_unit_test(bad_npy_files_say_what_is_wrong),
        cmocka_unit_test(files_survive_writing_and_reading),
        cmocka_unit_test(bad_safetensors_files_are_refused),
        cmocka_unit_test(literals_are_read),
        cmocka_unit_test(tensors_print_as_numpy_does),
        cmocka_unit_test(long_arrays_are_shortened_and_wrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
