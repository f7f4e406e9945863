#include "base/tensor.h"

#include <stdio.h>

int64_t rpi_shape_count(const rpi_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->dims; i++) count *= shape->size[i];
    return count;
}

int rpi_shape_equal(const rpi_shape *a, const rpi_shape *b) {
    if (a->dims != b->dims) return 0;
    for (int i = 0; i < a->dims; i++)
        if (a->size[i] != b->size[i]) return 0;
    return 1;
}

const char *rpi_shape_text(const rpi_shape *shape, char *text, size_t bytes) {
    size_t used = 0;
    if (bytes) text[0] = '\0';
    for (int i = 0; i < shape->dims && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? "x" : "",
                                 (long long)shape->size[i]);
    if (shape->dims == 0) snprintf(text, bytes, "scalar");
    return text;
}
