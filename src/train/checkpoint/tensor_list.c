#include "train/checkpoint/tensor_list.h"

#include "base/memory.h"
#include "base/status.h"

rp_status rpi_tensor_list_open(size_t most, rpi_tensor_list *list) {
    *list = (rpi_tensor_list){0};
    RP_TRY(rpi_alloc_array(most, sizeof *list->tensors, "a checkpoint's list", &list->tensors));
    rp_status status =
        rpi_alloc_array(most, RPI_CHECKPOINT_NAME, "a checkpoint's names", &list->names);
    if (status != RP_OK) rpi_free(list->tensors);
    return status;
}

void rpi_tensor_list_close(rpi_tensor_list *list) {
    rpi_free(list->tensors);
    rpi_free(list->names);
}

char *rpi_tensor_list_name(rpi_tensor_list *list) {
    return list->names[list->count];
}

void rpi_tensor_list_add(rpi_tensor_list *list, const rpi_parameter *parameter,
                         const float *data) {
    list->tensors[list->count] = (rpi_named_tensor){.name = list->names[list->count],
                                                    .dtype = RP_F32,
                                                    .shape = parameter->shape,
                                                    .data = data};
    list->count++;
}
