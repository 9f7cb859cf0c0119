/* Any bytes as a tensor file: the first byte chooses the format. */
#include "client/xopctl/literal.h"
#include "client/xopctl/npy.h"
#include "client/xopctl/print.h"
#include "client/xopctl/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct value value;
    struct xop_error error;
    enum xop_status status = XOP_INVALID_ARGUMENT;
    if (size < 2)
        return 0;
    if (data[0] % 4 == 3) {
        char *text = calloc(1, size);
        memcpy(text, data + 1, size - 1);
        if (literal_is(text))
            status = literal_read(text, &value, &error);
        free(text);
    } else {
        FILE *file = fmemopen((void *)(uintptr_t)(data + 1), size - 1, "rb");
        if (!file)
            return 0;
        status = data[0] % 4 == 2 ? safetensors_read(file, NULL, &value, &error)
                                  : npy_read(file, data[0] % 4 == 1, &value, &error);
        fclose(file);
    }
    if (status != XOP_OK)
        return 0;
    char *text = value.n <= 4096 ? print_value(&value) : NULL;
    free(text);
    value_free(&value);
    return 0;
}
