#include "train/tasks/task.h"

#include "engine/dimension.h"

#include <string.h>

/* Axes that programs bind to a number of their own. */
static bool is_named(const char *axis) {
    return strcmp(axis, "batch") == 0 || strcmp(axis, "sequence") == 0;
}

bool rpi_task_input_is_cut(const rpi_task_input *input) {
    return input->axes[1] && strcmp(input->axes[1], "sequence") == 0;
}

bool rpi_task_input_is_whole(const rpi_task_input *input) {
    for (int a = 0; input->axes[a]; a++)
        if (strcmp(input->axes[a], "whole") == 0) return true;
    return false;
}

/* The tokens of all that share a sequence. */
static int64_t whole_of(rpi_graph *graph, int sharers) {
    int64_t whole = rpi_graph_dimension(graph, "sequence");
    if (!rpi_dimension_multiply(whole, sharers, &whole))
        rpi_graph_fail(graph, RP_INVALID, "sequences of %d ranks are too long", sharers);
    return whole;
}

void rpi_task_add_inputs(const rpi_task *task, rpi_graph *graph, const rpi_data_shape *shape,
                         int sharers, rpi_value_id *out_values) {
    for (int i = 0; i < task->input_count; i++) {
        const rpi_task_input *input = &task->inputs[i];
        rpi_shape axes = {0};
        for (; input->axes[axes.dims]; axes.dims++) {
            const char *axis = input->axes[axes.dims];
            int64_t *size = &axes.size[axes.dims];
            if (strcmp(axis, "whole") == 0)
                *size = whole_of(graph, sharers);
            else
                *size = is_named(axis) ? rpi_graph_dimension(graph, axis)
                                       : rpi_data_axis(shape, axis);
        }
        out_values[i] = rpi_graph_input(graph, input->name, input->dtype, axes);
    }
}

size_t rpi_task_input_bytes(const rpi_task_input *input, const rpi_data_shape *shape) {
    size_t bytes = rp_dtype_bytes(input->dtype);
    for (int a = 1; input->axes[a]; a++) bytes *= (size_t)rpi_data_axis(shape, input->axes[a]);
    return bytes;
}
