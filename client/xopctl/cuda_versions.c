#include "cuda_versions.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct release {
    int version;
    const char *driver; /* for Linux on x86_64: this one or a later one */
};

/* From the table "CUDA Toolkit and Corresponding Driver Versions" of NVIDIA's release notes, of
 * each version its first release. docs/gpu.md has the same one. */
static const struct release releases[] = {
    {7050, "352.31"},     {8000, "367.48"},     {9000, "384.81"},     {9010, "390.46"},
    {9020, "396.26"},     {10000, "410.48"},    {10010, "418.39"},    {10020, "440.33"},
    {11000, "450.51.05"}, {11010, "455.23"},    {11020, "460.27.03"}, {11030, "465.19.01"},
    {11040, "470.42.01"}, {11050, "495.29.05"}, {11060, "510.39.01"}, {11070, "515.43.04"},
    {11080, "520.61.05"}, {12000, "525.60.13"}, {12010, "530.30.02"}, {12020, "535.54.03"},
    {12030, "545.23.06"}, {12040, "550.54.14"}, {12050, "555.42.02"}, {12060, "560.28.03"},
    {12080, "570.26"},    {12090, "575.51.03"}, {13000, "580.65.06"}, {13010, "590.44.01"},
};

/* Minor version compatibility, from the same notes: what any toolkit of a major version needs. For
 * CUDA 11 that is a release of the driver's own, later than 11.0's. */
static const struct release compatible[] = {
    {11000, "450.80.02"},
    {12000, "525.60.13"},
    {13000, "580.65.06"},
};

const char *cuda_driver_of(int toolkit) {
    const char *driver = NULL;
    for (size_t i = 0; i < sizeof releases / sizeof *releases && releases[i].version <= toolkit;
         i++)
        driver = releases[i].driver;
    return driver;
}

const char *cuda_oldest_driver(int toolkit) {
    for (size_t i = 0; i < sizeof compatible / sizeof *compatible; i++)
        if (CUDA_MAJOR(compatible[i].version) == CUDA_MAJOR(toolkit))
            return compatible[i].driver;
    return cuda_driver_of(toolkit);
}

/* Architectures are 10 * major + minor. Machine code runs on its own minor version and later ones
 * of the same major version, PTX on every later architecture; "90a" is for 9.0 alone. */
static bool covers(const char *list, int device, bool machine) {
    while (list && *list) {
        char *end;
        long arch = strtol(list, &end, 10);
        if (end == list)
            return false;
        bool alone = *end == 'a', family = *end == 'f';
        bool same_major = arch / 10 == device / 10;
        if (arch == device || (arch < device && !alone && (same_major || (!machine && !family))))
            return true;
        list = end + strcspn(end, ",");
        list += *list == ',';
    }
    return false;
}

enum cuda_fit cuda_fit(const char *machine, const char *ptx, int device) {
    if (covers(machine, device, true))
        return CUDA_MACHINE;
    return covers(ptx, device, false) ? CUDA_PTX : CUDA_NO_CODE;
}

bool cuda_runs(int driver, int toolkit) {
    if (CUDA_MAJOR(toolkit) >= 11)
        return CUDA_MAJOR(driver) >= CUDA_MAJOR(toolkit);
    return driver >= toolkit;
}

/* A driver knows the PTX of its own CUDA version and of those before. */
bool cuda_translates(int driver, int toolkit) { return driver >= toolkit; }
