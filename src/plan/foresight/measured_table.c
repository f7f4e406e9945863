#include "plan/foresight/measured_table.h"

#include "base/append.h"
#include "base/byte_order_mark.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { MOST_CELLS = 64 };

typedef enum column {
    C_HIDDEN,
    C_HEADS,
    C_KV_HEADS,
    C_HEAD,
    C_LAYERS,
    C_FFN,
    C_VOCABULARY,
    C_SEQUENCE,
    C_MICRO_BATCH,
    C_GLOBAL_BATCH,
    C_GPUS,
    C_TENSOR,
    C_PIPELINE,
    C_DATA,
    C_CONTEXT,
    C_INTERLEAVE,
    C_ZERO,
    C_SEQUENCE_PARALLEL,
    C_FUSED_ATTENTION,
    C_NUMBERS,
    C_RECOMPUTE = C_NUMBERS,
    C_PRECISION,
    C_ITERATION_S,
    C_ITERATION_MS,
    C_TOKENS_S,
    C_TOKENS_S_GPU,
    COLUMNS
} column;

static const rpi_measured_column columns[COLUMNS] = {
    {"hidden", "width of a token"},
    {"heads", "of attention"},
    {"kv_heads", "of keys and values; as many for each head as --model has"},
    {"head", "width of one; hidden over heads"},
    {"layers", "of the model"},
    {"ffn", "width inside of a block; as many times hidden as --model has"},
    {"vocabulary", "tokens that there are"},
    {"sequence", "tokens of a sample"},
    {"micro_batch", "samples of a micro-batch"},
    {"global_batch", "samples of a step"},
    {"gpus", "ranks; needed where data is not said"},
    {"tensor", "tensor-parallel ranks"},
    {"pipeline", "stages"},
    {"data", "replicas; gpus over the others"},
    {"context", "ranks that share each sequence; 1"},
    {"interleave", "chunks of layers a rank has"},
    {"zero", "what replicas share: 0 to 3"},
    {"sequence_parallel", "0 or 1"},
    {"fused_attention", "0 or 1"},
    {"recompute", "none, selective or full"},
    {"precision", "as --precision"},
    {"iteration_s", "seconds of a step"},
    {"iteration_ms", "the same in milliseconds"},
    {"tokens_per_s", "of all ranks, in its place"},
    {"tokens_per_s_gpu", "of one"},
};

const rpi_measured_column *rpi_measured_column_at(int index) {
    return index >= 0 && index < COLUMNS ? &columns[index] : NULL;
}

/* A row as it is being read. */
typedef struct reader {
    const rpi_training_layout *otherwise;
    int places[COLUMNS]; /* of the columns in a line; -1: absent */
    char *cells[MOST_CELLS];
    int cell_count, column_count;
} reader;

/* ---- cells ---- */

/* Takes one cell without its quotes; *at is then after it, NULL at the end. */
static char *take_cell(char **at) {
    char *begin = *at, *in = begin, *out = begin;
    bool quoted = false;
    for (; *in && (quoted || *in != ','); in++) {
        if (*in == '"')
            quoted = !quoted;
        else
            *out++ = *in;
    }
    *at = *in ? in + 1 : NULL;
    *out = '\0';
    while (out > begin && strchr(" \t\r", out[-1])) *--out = '\0';
    return begin + strspn(begin, " \t");
}

static rp_status split(reader *r, char *line) {
    r->cell_count = 0;
    while (line) {
        if (r->cell_count == MOST_CELLS)
            return RP_FAIL(INVALID, "%d columns are the most", MOST_CELLS);
        r->cells[r->cell_count++] = take_cell(&line);
    }
    return RP_OK;
}

static int column_of(const char *name) {
    for (int c = 0; c < COLUMNS; c++)
        if (strcmp(columns[c].name, name) == 0) return c;
    return -1;
}

static rp_status read_header(reader *r, char unused[RPI_UNUSED_TEXT]) {
    for (int c = 0; c < COLUMNS; c++) r->places[c] = -1;
    r->column_count = r->cell_count;
    for (int i = 0; i < r->cell_count; i++) {
        int c = column_of(r->cells[i]);
        if (c < 0)
            rpi_append(unused, RPI_UNUSED_TEXT, "%s%s", unused[0] ? ", " : "", r->cells[i]);
        else if (r->places[c] >= 0)
            return RP_FAIL(INVALID, "the column %s stands twice", columns[c].name);
        else
            r->places[c] = i;
    }
    for (int c = C_ITERATION_S; c < COLUMNS; c++)
        if (r->places[c] >= 0) return RP_OK;
    return RP_FAIL(INVALID, "no column says how long a step took: iteration_s, iteration_ms, "
                            "tokens_per_s or tokens_per_s_gpu");
}

/* The text of a cell; NULL: there is no such column. */
static rp_status cell(const reader *r, column c, const char **out) {
    *out = NULL;
    if (r->places[c] < 0) return RP_OK;
    if (r->places[c] >= r->cell_count || !r->cells[r->places[c]][0])
        return RP_FAIL(INVALID, "%s is empty", columns[c].name);
    *out = r->cells[r->places[c]];
    return RP_OK;
}

static rp_status positive(const reader *r, column c, double *out) {
    const char *text;
    RP_TRY(cell(r, c, &text));
    if (!text) return RP_OK;
    rp_status status = rpi_parse_real(text, out);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", columns[c].name);
    if (!(*out > 0) || !isfinite(*out))
        return RP_FAIL(INVALID, "%s: '%s' is not above 0", columns[c].name, text);
    return RP_OK;
}

static rp_status whole(const reader *r, column c, int64_t *out) {
    const char *text;
    double value;
    RP_TRY(cell(r, c, &text));
    if (!text) return RP_OK;
    rp_status status = rpi_parse_real(text, &value);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", columns[c].name);
    if (!(value >= 0 && value <= 1e9) || value != floor(value))
        return RP_FAIL(INVALID, "%s: '%s' is no whole number", columns[c].name, text);
    *out = (int64_t)value;
    return RP_OK;
}

/* ---- a row ---- */

/* Sets what follows from the width if no column gives it, in the shape of the other model. */
static void fill_model(const reader *r, rpi_transformer *m) {
    const rpi_transformer *other = &r->otherwise->model;
    if (r->places[C_HEAD] < 0 && m->heads > 0)
        m->head = m->hidden % m->heads ? 0 : m->hidden / m->heads;
    if (r->places[C_KV_HEADS] < 0)
        m->kv_heads = m->heads * other->kv_heads / (other->heads > 0 ? other->heads : 1);
    if (r->places[C_FFN] < 0 && m->hidden != other->hidden)
        m->ffn = (int64_t)((double)m->hidden * (double)other->ffn / (double)other->hidden + .5);
}

static rp_status read_numbers(const reader *r, rpi_training_layout *l, int64_t *ranks) {
    int64_t zero = l->zero, parallel = l->sequence_parallel, fused = l->fused_attention;
    int64_t *fields[C_NUMBERS] = {&l->model.hidden,
                                  &l->model.heads,
                                  &l->model.kv_heads,
                                  &l->model.head,
                                  &l->model.layers,
                                  &l->model.ffn,
                                  &l->model.vocabulary,
                                  &l->sequence,
                                  &l->micro_batch,
                                  &l->global_batch,
                                  ranks,
                                  &l->tensor,
                                  &l->pipeline,
                                  &l->data,
                                  &l->context,
                                  &l->interleave,
                                  &zero,
                                  &parallel,
                                  &fused};
    for (int c = 0; c < C_NUMBERS; c++) {
        RP_TRY(whole(r, (column)c, fields[c]));
        if (*fields[c] == 0 && r->places[c] >= 0 && c < C_ZERO)
            return RP_FAIL(INVALID, "%s: 0 is too few", columns[c].name);
    }
    if (zero > RPI_ZERO_MOST) return RP_FAIL(INVALID, "zero is 0 to %d", RPI_ZERO_MOST);
    l->zero = (int)zero;
    l->sequence_parallel = parallel && l->tensor > 1;
    l->fused_attention = fused;
    fill_model(r, &l->model);
    return RP_OK;
}

static rp_status read_words(const reader *r, rpi_training_layout *l) {
    const char *text;
    RP_TRY(cell(r, C_RECOMPUTE, &text));
    if (text) RP_TRY(rpi_recompute_parse(text, &l->recompute));
    RP_TRY(cell(r, C_PRECISION, &text));
    return text ? rpi_precision_find(text, &l->precision) : RP_OK;
}

/* Each number is at most 1e9, so that a product of two fits. */
static rp_status share_ranks(const reader *r, int64_t ranks, rpi_training_layout *l) {
    if (r->places[C_DATA] < 0 && r->places[C_GPUS] >= 0) {
        const int64_t sizes[] = {l->tensor, l->context, l->pipeline};
        int64_t left = ranks;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            if (left % sizes[i])
                return RP_FAIL(INVALID,
                               "%lld gpus are not whole replicas of %lld x %lld x %lld",
                               (long long)ranks, (long long)l->tensor, (long long)l->context,
                               (long long)l->pipeline);
            left /= sizes[i];
        }
        l->data = left;
    }
    RP_TRY(rpi_layout_check(l));
    if (r->places[C_GPUS] >= 0 && rpi_layout_ranks(l) != ranks)
        return RP_FAIL(INVALID, "tensor x context x pipeline x data is %lld, and gpus %lld",
                       (long long)rpi_layout_ranks(l), (long long)ranks);
    return RP_OK;
}

static rp_status read_row(const reader *r, rpi_measured_row *out) {
    int64_t ranks = 0;
    double s = 0, ms = 0, all = 0, each = 0;
    rpi_training_layout *l = &out->layout;
    *l = *r->otherwise;
    RP_TRY(read_numbers(r, l, &ranks));
    RP_TRY(read_words(r, l));
    RP_TRY(share_ranks(r, ranks, l));
    RP_TRY(positive(r, C_ITERATION_S, &s));
    RP_TRY(positive(r, C_ITERATION_MS, &ms));
    RP_TRY(positive(r, C_TOKENS_S, &all));
    RP_TRY(positive(r, C_TOKENS_S_GPU, &each));
    double tokens = (double)l->global_batch * (double)l->sequence;
    if (all == 0 && each > 0) all = each * (double)rpi_layout_ranks(l);
    out->step_s = s > 0 ? s : ms > 0 ? ms / 1000 : tokens / all;
    return RP_OK;
}

/* ---- the table ---- */

static rp_status add_row(rpi_measured_table *t, const reader *r, int line) {
    rpi_measured_row row = {.line = line};
    if (r->cell_count > r->column_count)
        return RP_FAIL(INVALID, "%d cells, and the first line names %d; numbers have no commas",
                       r->cell_count, r->column_count);
    size_t count = (size_t)t->count;
    RP_TRY(read_row(r, &row));
    if ((count & (count - 1)) == 0)
        RP_TRY(rpi_grow_array(count, count ? 2 * count : 1, sizeof row, "rows", &t->rows));
    t->rows[t->count++] = row;
    return RP_OK;
}

static rp_status parse(char *text, reader *r, rpi_measured_table *t) {
    bool has_header = false;
    text = rpi_after_byte_order_mark(text);
    for (int number = 1; *text; number++) {
        char *line = text;
        size_t length = strcspn(line, "\n");
        text += length + (line[length] == '\n');
        line[length] = '\0';
        if (line[0] == '#' || line[strspn(line, " \t\r")] == '\0') continue;
        rp_status status = split(r, line);
        if (status == RP_OK)
            status = has_header ? add_row(t, r, number) : read_header(r, t->unused);
        if (status != RP_OK) return rpi_fail_context(status, "line %d: ", number);
        has_header = true;
    }
    return t->count ? RP_OK : RP_FAIL(INVALID, "the table has no rows");
}

rp_status rpi_measured_table_parse(char *text, const rpi_training_layout *otherwise,
                                   rpi_measured_table *out) {
    reader r = {.otherwise = otherwise};
    rpi_measured_table t = {0};
    rp_status status = parse(text, &r, &t);
    if (status == RP_OK)
        *out = t;
    else
        rpi_free(t.rows);
    return status;
}
