/* Where memory lies, by answers that a GPU's driver may give: a row for each. */
#include "cuda/place.h"

#include "harness/check.h"

#include <string.h>

enum { NO_CONTEXT = 0, PRIMARY = 100, OTHER = 200, LOST = 700 };

typedef struct answers {
    const char *name;
    int error;              /* to the first question */
    unsigned type, managed; /* 1: of the host; 2: of a device */
    int device;
    intptr_t context;
    int active; /* the GPU's primary context is there */
    int returns, wanted;
} answers;

static const answers rows[] = {
    {"memory of the host", .error = 1, .wanted = RPI_CUDA_HOST},
    {"pinned memory", .type = 1, .context = PRIMARY, .active = 1, .wanted = RPI_CUDA_HOST},
    {"memory of the first GPU", .type = 2, .context = PRIMARY, .active = 1, .wanted = 0},
    {"memory of another GPU", .type = 2, .device = 3, .context = PRIMARY, .active = 1,
     .wanted = 3},
    {"managed memory", .type = 2, .managed = 1, .device = 2, .context = PRIMARY, .active = 1,
     .wanted = 2},
    {"managed memory that is with the host now", .type = 1, .managed = 1, .device = 1,
     .context = PRIMARY, .active = 1, .wanted = 1},
    {"memory of a pool", .type = 2, .device = 1, .context = NO_CONTEXT, .wanted = 1},
    {"memory of a program's own context", .type = 2, .context = OTHER, .active = 1,
     .wanted = RPI_CUDA_FOREIGN},
    {"the same, where nothing else has opened the GPU", .type = 2, .context = OTHER,
     .wanted = RPI_CUDA_FOREIGN},
    {"a GPU that has crashed", .error = LOST, .returns = LOST, .wanted = RPI_CUDA_HOST},
};

static const answers *now;
static int held, opened; /* retained contexts; those that this has made */

static int attribute(void *out, int which, unsigned long long address) {
    (void)address;
    if (now->error) return now->error;
    switch (which) {
    case RPI_POINTER_CONTEXT: memcpy(out, &now->context, sizeof now->context); return 0;
    case RPI_POINTER_TYPE: memcpy(out, &now->type, sizeof now->type); return 0;
    case RPI_POINTER_IS_MANAGED: *(unsigned char *)out = (unsigned char)now->managed; return 0;
    case RPI_POINTER_DEVICE: memcpy(out, &now->device, sizeof now->device); return 0;
    default: return 1;
    }
}

static int state(int device, unsigned *flags, int *active) {
    CHECK_EQ(device, now->device);
    *flags = 0;
    *active = now->active;
    return 0;
}

static int retain(void **context, int device) {
    intptr_t primary = PRIMARY;
    CHECK_EQ(device, now->device);
    opened += !now->active;
    held++;
    memcpy(context, &primary, sizeof primary);
    return 0;
}

static int release(int device) {
    CHECK_EQ(device, now->device);
    held--;
    return 0;
}

static void where_memory_lies(void) {
    static const rpi_driver_calls calls = {attribute, state, retain, release};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int device = 77, here = 0;
        now = &rows[i];
        int error = rpi_place_of(&calls, &here, &device);
        CHECK_MSG(error == now->returns && device == now->wanted, "%s: error %d, device %d",
                  now->name, error, device);
        CHECK_EQ(held, 0);
        CHECK_EQ(opened, 0);
    }
}

CASES({"where_memory_lies", where_memory_lies})
