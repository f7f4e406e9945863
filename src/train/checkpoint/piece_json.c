#include "train/checkpoint/piece.h"

#include "base/status.h"

#include <cjson/cJSON.h>
#include <string.h>

static const char *const kinds[] = {
    [RPI_SHARD_WHOLE] = "whole", [RPI_SHARD_FIRST] = "first", [RPI_SHARD_CUT] = "cut"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- writing ---- */

static bool add(cJSON *object, const char *name, int64_t number) {
    return cJSON_AddNumberToObject(object, name, (double)number) != NULL;
}

static bool append(cJSON *list, cJSON *item) {
    if (list && item && cJSON_AddItemToArray(list, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool append_number(cJSON *list, int64_t number) {
    return append(list, cJSON_CreateNumber((double)number));
}

static bool add_section(cJSON *list, const rpi_shard_section *section) {
    cJSON *pair = cJSON_CreateArray();
    bool done = append_number(pair, section->units) && append_number(pair, section->each);
    if (done) return append(list, pair);
    cJSON_Delete(pair);
    return false;
}

static bool add_shard(cJSON *object, const rpi_shard *shard) {
    cJSON *item = cJSON_AddObjectToObject(object, "shard");
    if (!cJSON_AddStringToObject(item, "kind", kinds[shard->kind])) return false;
    if (shard->kind != RPI_SHARD_CUT) return true;
    bool done = add(item, "axis", shard->axis) && add(item, "repeats", shard->repeats);
    cJSON *sections = cJSON_AddArrayToObject(item, "sections");
    for (int i = 0; i < shard->sections && done; i++)
        done = add_section(sections, &shard->section[i]);
    return done;
}

cJSON *rpi_piece_to_json(const rpi_tensor_piece *piece) {
    cJSON *object = cJSON_CreateObject();
    bool done = cJSON_AddStringToObject(object, "tensor", piece->tensor) != NULL;
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    for (int d = 0; d < piece->shape.dims && done; d++)
        done = append_number(shape, piece->shape.size[d]);
    done = done && shape && add_shard(object, &piece->shard) &&
           add(object, "ranks", piece->ranks) && add(object, "rank", piece->rank) &&
           add(object, "first", piece->first) && add(object, "count", piece->count);
    if (done) return object;
    cJSON_Delete(object);
    return NULL;
}

/* ---- reading ---- */

/* the largest count that JSON may give */
static const int64_t most_elements = (int64_t)1 << 52;

static bool take(const cJSON *item, int64_t least, int64_t most, int64_t *out) {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= (double)least) ||
        !(item->valuedouble <= (double)most))
        return false;
    *out = (int64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

static bool take_member(const cJSON *object, const char *name, int64_t least, int64_t most,
                        int64_t *out) {
    return take(cJSON_GetObjectItemCaseSensitive(object, name), least, most, out);
}

static bool take_shape(const cJSON *list, rpi_shape *out) {
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > RPI_MAX_DIMS) return false;
    int64_t count = 1;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        int64_t *size = &out->size[out->dims++];
        if (!take(item, 1, most_elements, size) || __builtin_mul_overflow(count, *size, &count))
            return false;
    }
    return count <= most_elements;
}

/* Units times their length must not exceed the axis, so that sums do not overflow. */
static bool take_section(const cJSON *pair, int64_t length, rpi_shard_section *out) {
    return cJSON_IsArray(pair) && cJSON_GetArraySize(pair) == 2 &&
           take(cJSON_GetArrayItem(pair, 0), 1, length, &out->units) &&
           take(cJSON_GetArrayItem(pair, 1), 1, length / out->units, &out->each);
}

static bool take_cut(const cJSON *object, const rpi_shape *shape, rpi_shard *out) {
    int64_t axis;
    const cJSON *sections = cJSON_GetObjectItemCaseSensitive(object, "sections"), *pair;
    if (!take_member(object, "axis", 0, shape->dims - 1, &axis)) return false;
    int64_t length = shape->size[axis], sum = 0;
    if (!take_member(object, "repeats", 1, length, &out->repeats)) return false;
    if (!cJSON_IsArray(sections) || cJSON_GetArraySize(sections) > RPI_SHARD_SECTIONS)
        return false;
    out->axis = (int)axis;
    cJSON_ArrayForEach(pair, sections) {
        rpi_shard_section *section = &out->section[out->sections++];
        if (!take_section(pair, length, section)) return false;
        sum += section->units * section->each;
    }
    return sum <= length / out->repeats;
}

static bool take_shard(const cJSON *object, const rpi_shape *shape, rpi_shard *out) {
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(object, "kind");
    if (!cJSON_IsString(kind)) return false;
    out->kind = 0;
    while (out->kind < KINDS && strcmp(kind->valuestring, kinds[out->kind]) != 0) out->kind++;
    if (out->kind == KINDS) return false;
    return out->kind != RPI_SHARD_CUT || take_cut(object, shape, out);
}

rp_status rpi_piece_from_json(const cJSON *json, rpi_tensor_piece *out_piece) {
    rpi_tensor_piece piece = {0};
    int64_t ranks, rank;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "tensor");
    if (!cJSON_IsObject(json) || !cJSON_IsString(name))
        return RP_FAIL(CORRUPT, "a piece names no tensor");
    piece.tensor = name->valuestring;
    bool sound = take_shape(cJSON_GetObjectItemCaseSensitive(json, "shape"), &piece.shape) &&
                 take_shard(cJSON_GetObjectItemCaseSensitive(json, "shard"), &piece.shape,
                            &piece.shard) &&
                 take_member(json, "ranks", 1, RPI_GRID_RANKS, &ranks) &&
                 take_member(json, "rank", 0, ranks - 1, &rank) &&
                 take_member(json, "first", 0, most_elements, &piece.first) &&
                 take_member(json, "count", 1, most_elements, &piece.count);
    if (!sound) return RP_FAIL(CORRUPT, "the piece of %s is described wrongly", piece.tensor);
    piece.ranks = (int)ranks;
    piece.rank = (int)rank;
    rp_status status = rpi_piece_check(&piece);
    if (status != RP_OK) return rpi_fail_context(RP_CORRUPT, "a piece, ");
    *out_piece = piece;
    return RP_OK;
}
