#include "train/data/data_shape.h"

#include <stdlib.h>
#include <string.h>

int64_t rpi_data_axis(const rpi_data_shape *shape, const char *axis) {
    const struct {
        const char *name;
        int size;
    } axes[] = {
        {"channels", shape->channels}, {"height", shape->height},
        {"width", shape->width},       {"classes", shape->classes},
        {"sequence", shape->sequence}, {"vocabulary", shape->vocabulary},
        {"whole", shape->sequence},
    };
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        if (strcmp(axes[i].name, axis) == 0) return axes[i].size;
    return atoi(axis);
}
