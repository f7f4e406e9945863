/* The builder of a model (blocks.h): the parameters that it has declared. */
#include "base/memory.h"
#include "base/status.h"
#include "train/models/blocks.h"

void rpi_builder_close(rpi_builder *builder) {
    rpi_free(builder->parameters);
    builder->parameters = NULL;
    builder->count = builder->room = 0;
}

static rp_status make_room(rpi_builder *builder) {
    if (builder->count < builder->room) return RP_OK;
    int room = builder->room ? builder->room * 2 : 64;
    RP_TRY(rpi_grow_array((size_t)builder->room, (size_t)room, sizeof *builder->parameters,
                          "the parameter record", &builder->parameters));
    builder->room = room;
    return RP_OK;
}

rpi_value_id rpi_declare(rpi_builder *builder, rpi_parameter record) {
    rp_status status = make_room(builder);
    if (status != RP_OK) {
        rpi_graph_fail(builder->graph, status, "%s", rp_last_error()->message);
        return RPI_NO_VALUE;
    }
    rpi_shape shape = record.shape;
    record.index = builder->declared++;
    if (!rpi_tensor_split_shape(builder->graph, &builder->split, &record, &shape))
        return RPI_NO_VALUE;
    record.value = record.is_state ? rpi_graph_state(builder->graph, record.name, shape)
                                   : rpi_graph_parameter(builder->graph, record.name, shape);
    if (record.value == RPI_NO_VALUE) return RPI_NO_VALUE;
    record.dtype = RP_F32;
    record.is_copied = rpi_tensor_split_copies(&builder->split, &record);
    record.name = rpi_graph_value(builder->graph, record.value)->name;
    builder->parameters[builder->count++] = record;
    return record.value;
}
