/* The products of a linear layer in bf16, summed in f32: by our own kernel, which rounds and
 * packs weights and gradients as it reads them, or by oneDNN's matmul primitive from rounded
 * copies. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/backends/cpu/kernels/kernel_matmul.h"
#include "engine/onednn/onednn_linear.h"
#include "engine/onednn/onednn_team.h"

enum { INPUT = RPI_DNN_LINEAR_INPUT, WEIGHT = RPI_DNN_LINEAR_WEIGHT };
enum { WHOLE, REST, PARTS };              /* rows at once in forward, and those that are left */
enum { OVERWRITING, ADDING, DELIVERIES }; /* of gradients */

struct rpi_dnn_linear_bf16 {
    rpi_dnn_session *session;
    int64_t rows, inputs, outputs, rows_at_once;
    bool is_own; /* by our own kernel; then there are no primitives but the input's rounding */
    rpi_dnn_primitive forward[PARTS];
    rpi_dnn_primitive input_gradient[DELIVERIES], weight_gradient[DELIVERIES];
    rpi_dnn_primitive round_input, round_gradient;
    rpi_dnn_packed *weight;
    bool saves;         /* the rounded input, for the weight's gradient; else it is lost, */
    bool rounds_again;  /* and the input is there again, and is rounded again */
    size_t input;       /* the rounded one: in what is saved, else in forward's workspace, */
    size_t input_again; /* and in backward's */
    size_t grad_output; /* the rounded one, in backward's workspace */
    size_t forward_scratch, backward_scratch;
};

static rpi_matmul_form form_of(const rpi_dnn_session *session) {
    const rpi_matmul_form form = rpi_kernel_matmul_form();
    if (rpi_dnn_kernel_run(session).isa != RPI_ISA_AVX512) return RPI_MATMUL_SCALAR;
    return form == RPI_MATMUL_AMX && !rpi_dnn_has_amx() ? RPI_MATMUL_SCALAR : form;
}

bool rpi_dnn_multiplies_itself(const rpi_dnn_session *session) {
    return form_of(session) != RPI_MATMUL_SCALAR;
}

bool rpi_dnn_convolves_itself(const rpi_dnn_session *session) {
    return form_of(session) == RPI_MATMUL_AMX;
}

/* GFLOP/s of ours from weights of f32, and of oneDNN 2.6 from rounded ones, one Zen 4 core, by
 * AVX512-BF16, x times 768 x 768: 4 rows: 15, 28; 16: 61, 88; 64: 166, 164; 256: 200, 203. But
 * large weights that are trained would be rounded anew for each step, which takes as long as
 * few rows, into a copy half as large as they are. */
static bool is_own(const rpi_dnn_session *session, const rpi_dnn_linear *linear) {
    enum { FEW = 64, LARGE = 1 << 22 };
    const rpi_matmul_form form = form_of(session);
    const bool spares_memory =
        linear->wants_weight && linear->inputs * linear->outputs >= LARGE;
    return form == RPI_MATMUL_AMX ||
           (form == RPI_MATMUL_AVX512 && (linear->rows >= FEW || spares_memory));
}

static void multiply(const rpi_dnn_linear_bf16 *it, const rpi_kernel_matmul *product) {
    rpi_kernel_run run = rpi_dnn_kernel_run(it->session);
    rpi_dnn_team_enter(run.threads);
    rpi_kernel_matmul_run(&run, product);
}

/* ---- running ---- */

static void *rounded_input(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io) {
    return rpi_dnn_at(it->saves ? io->saved : io->workspace, it->input);
}

rp_status rpi_dnn_linear_bf16_begin(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io) {
    return rpi_dnn_copy_run(it->session, &it->round_input, io->inputs[INPUT],
                            rounded_input(it, io),
                            rpi_dnn_at(io->workspace, it->forward_scratch));
}

static void add_bias(const rpi_dnn_linear_bf16 *it, int64_t rows, const float *bias, float *z) {
    const rpi_kernel_run run = rpi_dnn_kernel_run(it->session);
    const rpi_kernel_rows sums = rpi_kernel_f32(z, it->outputs);
    rpi_kernel_add_bias(
        &run, &(rpi_kernel_add){
                  .rows = rows, .cols = it->outputs, .a = sums, .bias = bias, .y = sums});
}

rp_status rpi_dnn_linear_bf16_multiply(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io,
                                       int64_t first, int64_t count, const float *bias,
                                       float *z) {
    const void *weight = NULL;
    const uint16_t *x = rounded_input(it, io);
    const rpi_dnn_primitive *product = &it->forward[count == it->rows_at_once ? WHOLE : REST];
    if (it->is_own) {
        multiply(it, &(rpi_kernel_matmul){
                         .m = count,
                         .n = it->outputs,
                         .k = it->inputs,
                         .a = rpi_kernel_bf16(x + first * it->inputs, it->inputs),
                         .b = rpi_kernel_f32(io->inputs[WEIGHT], it->inputs),
                         .b_transposed = true,
                         .c = rpi_kernel_f32(z, it->outputs),
                         .bias = bias,
                         .workspace = rpi_dnn_at(io->workspace, it->forward_scratch)});
        return RP_OK;
    }
    RP_TRY(rpi_dnn_packed_renew(it->session, it->weight, io->inputs[WEIGHT],
                                io->versions[WEIGHT], &weight));
    RP_TRY(rpi_dnn_primitive_run(it->session, product,
                                 (const void *[]){x + first * it->inputs, weight, z},
                                 rpi_dnn_at(io->workspace, it->forward_scratch)));
    if (bias) add_bias(it, count, bias, z);
    return RP_OK;
}

/* Each half rounds it: they may be called far from each other. */
static rp_status round_gradient(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io,
                                const float *dz, void **out_rounded) {
    *out_rounded = rpi_dnn_at(io->workspace, it->grad_output);
    return rpi_dnn_copy_run(it->session, &it->round_gradient, dz, *out_rounded,
                            rpi_dnn_at(io->workspace, it->backward_scratch));
}

static int delivery(const rpi_kernel_io *io, int input) {
    return io->accumulate >> input & 1u ? ADDING : OVERWRITING;
}

rp_status rpi_dnn_linear_bf16_input_gradient(const rpi_dnn_linear_bf16 *it,
                                             const rpi_kernel_io *io, const float *dz) {
    void *rounded = NULL;
    const void *weight = NULL;
    if (it->is_own) {
        multiply(it, &(rpi_kernel_matmul){
                         .m = it->rows,
                         .n = it->inputs,
                         .k = it->outputs,
                         .a = rpi_kernel_f32(dz, it->outputs),
                         .b = rpi_kernel_f32(io->inputs[WEIGHT], it->inputs),
                         .c = rpi_kernel_f32(io->grad_inputs[INPUT], it->inputs),
                         .accumulate = delivery(io, INPUT) == ADDING,
                         .workspace = rpi_dnn_at(io->workspace, it->backward_scratch)});
        return RP_OK;
    }
    RP_TRY(round_gradient(it, io, dz, &rounded));
    RP_TRY(rpi_dnn_packed_renew(it->session, it->weight, io->inputs[WEIGHT],
                                io->versions[WEIGHT], &weight));
    return rpi_dnn_primitive_run(it->session, &it->input_gradient[delivery(io, INPUT)],
                                 (const void *[]){rounded, weight, io->grad_inputs[INPUT]},
                                 rpi_dnn_at(io->workspace, it->backward_scratch));
}

static rp_status input_of_backward(const rpi_dnn_linear_bf16 *it, const rpi_kernel_io *io,
                                   void **out_input) {
    *out_input =
        it->rounds_again ? rpi_dnn_at(io->workspace, it->input_again) : rounded_input(it, io);
    if (!it->rounds_again) return RP_OK;
    return rpi_dnn_copy_run(it->session, &it->round_input, io->inputs[INPUT], *out_input,
                            rpi_dnn_at(io->workspace, it->backward_scratch));
}

rp_status rpi_dnn_linear_bf16_weight_gradient(const rpi_dnn_linear_bf16 *it,
                                              const rpi_kernel_io *io, const float *dz) {
    void *rounded = NULL, *input = NULL;
    RP_TRY(input_of_backward(it, io, &input));
    if (it->is_own) {
        multiply(it, &(rpi_kernel_matmul){
                         .m = it->outputs,
                         .n = it->inputs,
                         .k = it->rows,
                         .a = rpi_kernel_f32(dz, it->outputs),
                         .a_transposed = true,
                         .b = rpi_kernel_bf16(input, it->inputs),
                         .c = rpi_kernel_f32(io->grad_inputs[WEIGHT], it->inputs),
                         .accumulate = delivery(io, WEIGHT) == ADDING,
                         .workspace = rpi_dnn_at(io->workspace, it->backward_scratch)});
        return RP_OK;
    }
    RP_TRY(round_gradient(it, io, dz, &rounded));
    return rpi_dnn_primitive_run(it->session, &it->weight_gradient[delivery(io, WEIGHT)],
                                 (const void *[]){rounded, input, io->grad_inputs[WEIGHT]},
                                 rpi_dnn_at(io->workspace, it->backward_scratch));
}

/* ---- planning ---- */

/* A matrix of rows x cols of bf16; dnnl_ba: it lies as cols x rows. */
typedef struct matrix {
    int64_t rows, cols;
    dnnl_format_tag_t tag;
} matrix;

static rp_status md_of(const matrix *m, rp_dtype dtype, rpi_dnn_md *out_md) {
    return rpi_dnn_md_create(2, (const int64_t[]){m->rows, m->cols}, dtype, m->tag, out_md);
}

/* target = or += source x weights; the target is of f32. */
static rp_status make_product(const rpi_dnn_session *session, const matrix *source,
                              const matrix *weights, bool accumulate, rpi_dnn_primitive *out) {
    static const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    matrix target = {source->rows, weights->cols, dnnl_ab};
    rpi_dnn_md mds[3] = {NULL};
    dnnl_primitive_desc_t pd = NULL;
    rp_status status = md_of(source, RP_BF16, &mds[0]);
    if (status == RP_OK) status = md_of(weights, RP_BF16, &mds[1]);
    if (status == RP_OK) status = md_of(&target, RP_F32, &mds[2]);
    rpi_dnn_matmul product = {mds[0], mds[1], mds[2], accumulate};
    if (status == RP_OK) status = rpi_dnn_matmul_describe(&session->dnn, &product, &pd);
    for (int i = 0; i < 3; i++) rpi_dnn_md_destroy(mds[i]);
    return status == RP_OK ? rpi_dnn_primitive_create(session, pd, 3, names, out) : status;
}

/* z (rows x outputs) = x (rows x inputs) w^T */
static rp_status make_forward(rpi_dnn_linear_bf16 *it) {
    matrix x = {it->rows_at_once, it->inputs, dnnl_ab}, rest = x;
    matrix weight = {it->inputs, it->outputs, dnnl_ba};
    rest.rows = it->rows % it->rows_at_once;
    RP_TRY(make_product(it->session, &x, &weight, false, &it->forward[WHOLE]));
    if (!rest.rows) return RP_OK;
    return make_product(it->session, &rest, &weight, false, &it->forward[REST]);
}

/* dx (rows x inputs) = or += dz (rows x outputs) w */
static rp_status make_input_gradient(rpi_dnn_linear_bf16 *it) {
    matrix dz = {it->rows, it->outputs, dnnl_ab}, weight = {it->outputs, it->inputs, dnnl_ab};
    for (int i = 0; i < DELIVERIES; i++)
        RP_TRY(make_product(it->session, &dz, &weight, i == ADDING, &it->input_gradient[i]));
    return RP_OK;
}

/* dw (outputs x inputs) = or += dz^T x */
static rp_status make_weight_gradient(rpi_dnn_linear_bf16 *it) {
    matrix dz = {it->outputs, it->rows, dnnl_ba}, x = {it->rows, it->inputs, dnnl_ab};
    for (int i = 0; i < DELIVERIES; i++)
        RP_TRY(make_product(it->session, &dz, &x, i == ADDING, &it->weight_gradient[i]));
    return RP_OK;
}

/* A row-major copy serves both products of oneDNN. What it would choose for each is quicker by
 * less than two such packings cost: of 256 or 512 rows, 768 x 2304 to 768 x 50257 weights. */
static rp_status get_weight(rpi_dnn_linear_bf16 *it, int parameter) {
    matrix weight = {it->outputs, it->inputs, dnnl_ab};
    rpi_dnn_md plain = NULL, rounded = NULL;
    rp_status status = md_of(&weight, RP_F32, &plain);
    if (status == RP_OK) status = md_of(&weight, RP_BF16, &rounded);
    if (status == RP_OK)
        status = rpi_dnn_packed_get(it->session, parameter, plain, rounded,
                                    &(rpi_dnn_widening){0}, &it->weight);
    rpi_dnn_md_destroy(plain);
    rpi_dnn_md_destroy(rounded);
    return status;
}

static rp_status make_rounding(const rpi_dnn_session *session, int64_t count,
                               rpi_dnn_primitive *out) {
    rpi_dnn_md from = NULL, to = NULL;
    rp_status status = rpi_dnn_flat_md(count, RP_F32, &from);
    if (status == RP_OK) status = rpi_dnn_flat_md(count, RP_BF16, &to);
    if (status == RP_OK) status = rpi_dnn_copy_create(session, from, to, false, out);
    rpi_dnn_md_destroy(from);
    rpi_dnn_md_destroy(to);
    return status;
}

static rp_status make_primitives(rpi_dnn_linear_bf16 *it, const rpi_unit *unit,
                                 const rpi_dnn_linear *linear) {
    RP_TRY(make_rounding(it->session, it->rows * it->inputs, &it->round_input));
    if (it->is_own) return RP_OK;
    RP_TRY(get_weight(it, unit->inputs[WEIGHT].parameter));
    RP_TRY(make_forward(it));
    if (linear->wants_input || linear->wants_weight)
        RP_TRY(make_rounding(it->session, it->rows * it->outputs, &it->round_gradient));
    if (linear->wants_input) RP_TRY(make_input_gradient(it));
    return linear->wants_weight ? make_weight_gradient(it) : RP_OK;
}

static size_t largest_scratch(const rpi_dnn_primitive *rounding,
                              const rpi_dnn_primitive *products, int count) {
    size_t bytes = rounding->scratch_bytes;
    for (int i = 0; i < count; i++)
        if (products[i].scratch_bytes > bytes) bytes = products[i].scratch_bytes;
    return bytes;
}

static size_t largest(size_t a, size_t b) {
    return a > b ? a : b;
}

static void reserve(rpi_dnn_linear_bf16 *it, rpi_kernel *out) {
    const size_t element = sizeof(uint16_t);
    const rpi_kernel_run run = rpi_dnn_kernel_run(it->session);
    size_t *home = it->saves ? &out->saved_bytes : &out->forward_workspace;
    size_t *back = &out->backward_workspace;
    size_t forward = largest_scratch(&it->round_input, it->forward, PARTS);
    size_t input = largest_scratch(&it->round_gradient, it->input_gradient, DELIVERIES);
    size_t weight = largest_scratch(&it->round_gradient, it->weight_gradient, DELIVERIES);
    size_t own = it->is_own ? rpi_kernel_matmul_workspace(&run) : 0;
    it->input = rpi_dnn_reserve(home, element * (size_t)(it->rows * it->inputs));
    if (it->rounds_again)
        it->input_again = rpi_dnn_reserve(back, element * (size_t)(it->rows * it->inputs));
    it->forward_scratch = rpi_dnn_reserve(&out->forward_workspace, largest(forward, own));
    size_t round = it->rounds_again ? it->round_input.scratch_bytes : 0;
    it->backward_scratch =
        rpi_dnn_reserve(back, largest(largest(own, round), largest(input, weight)));
    if (!it->is_own)
        it->grad_output = rpi_dnn_reserve(back, element * (size_t)(it->rows * it->outputs));
}

rp_status rpi_dnn_linear_bf16_open(rpi_dnn_session *session, const rpi_unit *unit,
                                   const rpi_dnn_linear *linear, int64_t rows_at_once,
                                   rpi_kernel *out, rpi_dnn_linear_bf16 **out_bf16) {
    rpi_dnn_linear_bf16 *it = NULL;
    RP_TRY(rpi_alloc(sizeof *it, "linear kernel in bf16", &it));
    *it = (rpi_dnn_linear_bf16){.session = session,
                                .rows = linear->rows,
                                .inputs = linear->inputs,
                                .outputs = linear->outputs,
                                .rows_at_once = rows_at_once,
                                .is_own = is_own(session, linear),
                                .saves = linear->wants_weight && !unit->inputs[INPUT].is_remade,
                                .rounds_again =
                                    linear->wants_weight && unit->inputs[INPUT].is_remade};
    rp_status status = make_primitives(it, unit, linear);
    if (status != RP_OK) {
        rpi_dnn_linear_bf16_close(it);
        return status;
    }
    reserve(it, out);
    *out_bf16 = it;
    return RP_OK;
}

void rpi_dnn_linear_bf16_close(rpi_dnn_linear_bf16 *it) {
    if (!it) return;
    for (int i = 0; i < PARTS; i++) rpi_dnn_primitive_destroy(&it->forward[i]);
    for (int i = 0; i < DELIVERIES; i++) {
        rpi_dnn_primitive_destroy(&it->input_gradient[i]);
        rpi_dnn_primitive_destroy(&it->weight_gradient[i]);
    }
    rpi_dnn_primitive_destroy(&it->round_input);
    rpi_dnn_primitive_destroy(&it->round_gradient);
    rpi_dnn_packed_release(it->session, it->weight);
    rpi_free(it);
}
