#include "train/checkpoint/piece_files.h"

#include "base/memory.h"
#include "base/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

enum { FIRST_ROOM = 64, NAME = 256 };

static rp_status make_room(rpi_piece_list *list) {
    if (!list->pieces) list->pieces = cJSON_CreateArray();
    if (!list->pieces) return RP_FAIL(NOMEM, "no memory for a list of pieces");
    if (list->count < list->room) return RP_OK;
    size_t grown = list->room ? 2 * (size_t)list->room : FIRST_ROOM;
    RP_TRY(rpi_grow_array((size_t)list->count, grown, sizeof *list->tensors, "pieces",
                          &list->tensors));
    list->room = (int)grown;
    return RP_OK;
}

/* An entry's name is its tensor's name and where the piece begins, because a file may have
 * several pieces of a tensor. */
static rp_status name_entry(const rpi_tensor_piece *piece, const char **out_name) {
    char text[NAME];
    char *name = NULL;
    int length = snprintf(text, sizeof text, "%s@%lld", piece->tensor, (long long)piece->first);
    if (length < 0 || length >= NAME)
        return RP_FAIL(INVALID, "%s: its name is too long for a checkpoint", piece->tensor);
    RP_TRY(rpi_strdup(text, &name));
    *out_name = name;
    return RP_OK;
}

rp_status rpi_piece_list_add(rpi_piece_list *list, const rpi_tensor_piece *piece,
                             const float *data) {
    rpi_named_tensor tensor = {.dtype = RP_F32, .shape = {1, {piece->count}}, .data = data};
    RP_TRY(make_room(list));
    RP_TRY(name_entry(piece, &tensor.name));
    list->tensors[list->count++] = tensor;
    cJSON *object = rpi_piece_to_json(piece);
    if (object && cJSON_AddItemToArray(list->pieces, object)) return RP_OK;
    cJSON_Delete(object);
    return RP_FAIL(NOMEM, "no memory for a list of pieces");
}

rp_status rpi_piece_list_share(rpi_piece_list *list, const rpi_tensor_piece *tensor,
                               const rpi_piece_saver *saver, const float *elements) {
    rpi_piece_share share;
    rpi_tensor_piece piece;
    RP_TRY(rpi_piece_share_begin(tensor, saver, &share));
    while (rpi_piece_share_next(&share, &piece))
        RP_TRY(rpi_piece_list_add(list, &piece, elements + piece.first));
    return RP_OK;
}

rp_status rpi_piece_list_text(rpi_piece_list *list, const char **out_text) {
    if (!list->text && list->pieces) list->text = cJSON_PrintUnformatted(list->pieces);
    if (!list->text && list->pieces) return RP_FAIL(NOMEM, "no memory for a list of pieces");
    *out_text = list->text ? list->text : "[]";
    return RP_OK;
}

void rpi_piece_list_close(rpi_piece_list *list) {
    for (int i = 0; i < list->count; i++) rpi_free((void *)list->tensors[i].name);
    rpi_free(list->tensors);
    cJSON_Delete(list->pieces);
    cJSON_free(list->text);
    *list = (rpi_piece_list){0};
}
