#include "train/step_picture.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <cjson/cJSON.h>

static const char *const names[RPI_PICTURE_KINDS] = {
    "forward", "backward", "inputs", "weights", "stages", "layers", "replicas"};

rp_status rpi_step_picture_open(rpi_step_picture *out_picture) {
    rpi_step_picture p = {0};
    RP_TRY(
        rpi_alloc_array(RPI_PICTURE_SPANS, sizeof *p.spans, "the picture of a step", &p.spans));
    *out_picture = p;
    return RP_OK;
}

void rpi_step_picture_close(rpi_step_picture *p) {
    rpi_free(p->spans);
    *p = (rpi_step_picture){0};
}

void rpi_step_picture_start(rpi_step_picture *p) {
    p->zero_ns = rpi_now_ns();
}

void rpi_step_picture_begin(rpi_step_picture *p, int64_t step, int64_t start_ns) {
    if (!p->spans) return;
    p->count = 0;
    p->step = step;
    p->start_ns = p->end_ns = start_ns;
    p->is_open = true;
}

void rpi_step_picture_add(rpi_step_picture *p, rpi_picture_kind kind, int chunk,
                          int64_t micro_batch, int64_t start_ns, int64_t end_ns) {
    enum { SHORTEST_NS = 1000 };
    if (!p->is_open || p->count == RPI_PICTURE_SPANS || end_ns - start_ns < SHORTEST_NS) return;
    p->spans[p->count++] = (rpi_picture_span){.start_ns = start_ns,
                                              .end_ns = end_ns,
                                              .kind = (int32_t)kind,
                                              .chunk = chunk,
                                              .micro_batch = (int32_t)micro_batch};
}

void rpi_step_picture_end(rpi_step_picture *p, int64_t end_ns) {
    p->end_ns = end_ns;
    p->is_open = false;
}

/* ---- of all ranks of a replica ---- */

/* Numbers that a rank sends before its spans. */
enum { STEP, COUNT, START, END, NUMBERS };

static double seconds_from(int64_t zero_ns, int64_t ns) {
    return 1e-9 * (double)(ns - zero_ns);
}

static cJSON *span_json(const rpi_picture_span *span, int64_t zero_ns) {
    cJSON *row = cJSON_CreateArray();
    cJSON_AddItemToArray(row, cJSON_CreateString(names[span->kind]));
    cJSON_AddItemToArray(row, cJSON_CreateNumber(span->chunk));
    cJSON_AddItemToArray(row, cJSON_CreateNumber(span->micro_batch));
    cJSON_AddItemToArray(row, cJSON_CreateNumber(seconds_from(zero_ns, span->start_ns)));
    cJSON_AddItemToArray(row, cJSON_CreateNumber(seconds_from(zero_ns, span->end_ns)));
    return row;
}

/* Times are from the beginning of the step on rank 0. */
static cJSON *rank_json(const rpi_train_place *place, int rank, const int64_t *numbers,
                        const rpi_picture_span *spans, int64_t zero_ns) {
    rpi_grid_place at = rpi_grid_place_of(&place->grid, rank);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "rank", rank);
    cJSON_AddNumberToObject(object, "stage", at.at[RPI_AXIS_STAGE]);
    cJSON_AddNumberToObject(object, "context", at.at[RPI_AXIS_CONTEXT]);
    cJSON_AddNumberToObject(object, "tensor", at.at[RPI_AXIS_TENSOR]);
    cJSON_AddNumberToObject(object, "start_s", seconds_from(zero_ns, numbers[START]));
    cJSON_AddNumberToObject(object, "end_s", seconds_from(zero_ns, numbers[END]));
    cJSON *list = cJSON_AddArrayToObject(object, "spans");
    for (int64_t i = 0; i < numbers[COUNT]; i++)
        cJSON_AddItemToArray(list, span_json(&spans[i], zero_ns));
    return object;
}

/* A rank's times count from its own beginning of the run, which was at the same moment on all
 * ranks. */
static void take_numbers(const rpi_step_picture *p, int64_t numbers[NUMBERS]) {
    numbers[STEP] = p->step;
    numbers[COUNT] = p->count;
    numbers[START] = p->start_ns - p->zero_ns;
    numbers[END] = p->end_ns - p->zero_ns;
}

static void shift(rpi_picture_span *spans, int64_t count, int64_t by_ns) {
    for (int64_t i = 0; i < count; i++) {
        spans[i].start_ns += by_ns;
        spans[i].end_ns += by_ns;
    }
}

static rp_status send_own(const rpi_step_picture *p, rp_comm *comm) {
    int64_t numbers[NUMBERS];
    take_numbers(p, numbers);
    shift(p->spans, p->count, -p->zero_ns);
    rp_status status = rp_send(comm, numbers, NUMBERS, RP_I64, 0, 0);
    size_t bytes = (size_t)p->count * sizeof *p->spans;
    if (status == RP_OK && bytes) status = rp_send(comm, p->spans, bytes, RP_U8, 0, 0);
    shift(p->spans, p->count, p->zero_ns);
    return status;
}

static rp_status receive(const rpi_train_place *place, rp_comm *comm, int rank, int64_t zero_ns,
                         cJSON *list) {
    int64_t numbers[NUMBERS];
    rpi_picture_span *spans = NULL;
    RP_TRY(rp_recv(comm, numbers, NUMBERS, RP_I64, rank, 0));
    if (numbers[COUNT] < 0 || numbers[COUNT] > RPI_PICTURE_SPANS)
        return RP_FAIL(CORRUPT, "rank %d has a picture of %lld spans", rank,
                       (long long)numbers[COUNT]);
    RP_TRY(rpi_alloc_array(RPI_PICTURE_SPANS, sizeof *spans, "the picture of a step", &spans));
    size_t bytes = (size_t)numbers[COUNT] * sizeof *spans;
    rp_status status = bytes ? rp_recv(comm, spans, bytes, RP_U8, rank, 0) : RP_OK;
    if (status == RP_OK)
        cJSON_AddItemToArray(list, rank_json(place, rank, numbers, spans, zero_ns));
    rpi_free(spans);
    return status;
}

static rp_status receive_all(const rpi_step_picture *p, const rpi_train_place *place,
                             rp_comm *comm, cJSON *list) {
    int64_t own[NUMBERS];
    take_numbers(p, own);
    int64_t zero_ns = own[START];
    shift(p->spans, p->count, -p->zero_ns);
    cJSON_AddItemToArray(list, rank_json(place, 0, own, p->spans, zero_ns));
    shift(p->spans, p->count, p->zero_ns);
    for (int rank = 1; rank < place->world; rank++)
        if (rpi_grid_place_of(&place->grid, rank).at[RPI_AXIS_DATA] == 0)
            RP_TRY(receive(place, comm, rank, zero_ns, list));
    return RP_OK;
}

rp_status rpi_step_picture_gather(const rpi_step_picture *p, const rpi_train_place *place,
                                  rp_comm *comm, struct cJSON **out_object) {
    *out_object = NULL;
    if (!p->spans || !p->step || place->replica) return RP_OK;
    if (place->rank) return send_own(p, comm);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "picture_step", (double)p->step);
    rp_status status = receive_all(p, place, comm, cJSON_AddArrayToObject(object, "ranks"));
    if (status == RP_OK)
        *out_object = object;
    else
        cJSON_Delete(object);
    return status;
}
