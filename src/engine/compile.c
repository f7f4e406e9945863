/* Compiles a graph to a program: forward and backward passes as steps over places. */
#include "engine/compile.h"

#include "base/memory.h"
#include "base/status.h"

enum { BLOCK_BYTES = 65536 };

static rp_status check_activation(const rpi_compiler *compiler, const char *what,
                                  rpi_value_id id) {
    const rpi_graph *graph = compiler->program->graph;
    if (id >= 0 && id < compiler->value_count &&
        rpi_graph_value(graph, id)->kind == RPI_VALUE_ACTIVATION)
        return RP_OK;
    return RP_FAIL(INVALID, "%s (value %d) is no activation of the graph", what, id);
}

/* The places where the caller cuts the graph: values that are given instead of computed, and
 * values whose gradients are given. */
static rp_status add_cuts(rpi_compiler *compiler) {
    const rpi_program_options *options = compiler->options;
    rpi_program *program = compiler->program;
    for (int i = 0; i < options->given_count; i++) {
        RP_TRY(check_activation(compiler, "a given value", options->given[i]));
        compiler->values[options->given[i]].is_given = true;
        compiler->values[options->given[i]].needed = true;
        program->given[program->given_count++].value = options->given[i];
    }
    for (int i = 0; i < options->seed_count; i++) {
        RP_TRY(check_activation(compiler, "a seed", options->seeds[i]));
        rpi_compiled_value *value = &compiler->values[options->seeds[i]];
        if (value->is_given || options->seeds[i] == compiler->loss)
            return RP_FAIL(INVALID, "a seed (value %d) is the loss or a given value",
                           options->seeds[i]);
        value->needed = value->is_result = value->is_seed = true;
        value->has_gradient = options->training;
        program->seeds[program->seed_count++] = options->seeds[i];
    }
    return RP_OK;
}

static rp_status add_result(rpi_compiler *compiler, rpi_value_id id) {
    rpi_program *program = compiler->program;
    RP_TRY(check_activation(compiler, "a result", id));
    compiler->values[id].needed = compiler->values[id].is_result = true;
    program->results[program->result_count++].value = id;
    return RP_OK;
}

static rp_status check_cut(const char *what, int count) {
    if (count >= 0 && count <= RPI_PROGRAM_CUTS) return RP_OK;
    return RP_FAIL(INVALID, "%d %s; at most %d are allowed", count, what, RPI_PROGRAM_CUTS);
}

static rp_status check_request(const rpi_compiler *compiler) {
    const rpi_program *program = compiler->program;
    if (compiler->options->result_count < 0 ||
        compiler->options->result_count > RPI_PROGRAM_RESULTS)
        return RP_FAIL(INVALID, "%d results; at most %d are allowed",
                       compiler->options->result_count, RPI_PROGRAM_RESULTS);
    RP_TRY(check_cut("given values", compiler->options->given_count));
    RP_TRY(check_cut("seeds", compiler->options->seed_count));
    if (compiler->loss == RPI_NO_VALUE)
        return compiler->options->training && !compiler->options->seed_count
                   ? RP_FAIL(INVALID, "training without a loss or a seed")
                   : RP_OK;
    if (compiler->loss < 0 || compiler->loss >= compiler->value_count)
        return RP_FAIL(INVALID, "the loss is no value of the graph");
    const rpi_value *loss = rpi_graph_value(program->graph, compiler->loss);
    if (loss->dtype != RP_F32 || loss->shape.dims != 0)
        return RP_FAIL(INVALID, "the loss '%s' is no scalar of f32", loss->name);
    return RP_OK;
}

static void place_leaves(rpi_compiler *compiler) {
    static const rpi_value_place_kind places[] = {RPI_IN_INPUT, RPI_IN_WEIGHTS, RPI_IN_WEIGHTS,
                                                  RPI_NOWHERE};
    for (int i = 0; i < compiler->value_count; i++) {
        const rpi_value *value = rpi_graph_value(compiler->program->graph, i);
        /* an unneeded value's dimensions may have no size */
        if (!compiler->values[i].needed) continue;
        int index = value->kind == RPI_VALUE_INPUT ? value->index : i;
        compiler->values[i].place =
            (rpi_value_place){places[value->kind], index, rpi_row_major(compiler, i)};
    }
    int first = rpi_graph_kind_count(compiler->program->graph, RPI_VALUE_INPUT);
    for (int i = 0; i < compiler->options->given_count; i++) {
        rpi_value_id id = compiler->options->given[i];
        compiler->values[id].place =
            (rpi_value_place){RPI_IN_INPUT, first + i, rpi_row_major(compiler, id)};
    }
}

static void describe_result(const rpi_compiler *compiler, rpi_program_result *result) {
    const rpi_value *value = rpi_graph_value(compiler->program->graph, result->value);
    result->tensor = (rpi_tensor){.dtype = value->dtype,
                                  .domain = RPI_HOST,
                                  .shape = compiler->values[result->value].shape};
}

static rp_status build(rpi_compiler *compiler) {
    rpi_program *program = compiler->program;
    RP_TRY(rpi_graph_check(program->graph));
    RP_TRY(check_request(compiler));
    RP_TRY(rpi_backend_check_compute(program->backend, compiler->options->compute));
    RP_TRY(rpi_arena_create(BLOCK_BYTES, &program->memory));
    RP_TRY(rpi_arena_alloc(program->memory,
                           (size_t)compiler->value_count * sizeof *compiler->values,
                           &compiler->values));
    if (compiler->loss != RPI_NO_VALUE) {
        RP_TRY(add_result(compiler, compiler->loss));
        compiler->values[compiler->loss].has_gradient = compiler->options->training;
    }
    RP_TRY(add_cuts(compiler));
    for (int i = 0; i < compiler->options->result_count; i++)
        RP_TRY(add_result(compiler, compiler->options->results[i]));
    RP_TRY(rpi_compile_units(compiler));
    place_leaves(compiler);
    RP_TRY(rpi_compile_passes(compiler));
    if (compiler->options->training) RP_TRY(rpi_compile_finals(compiler));
    for (int i = 0; i < program->result_count; i++)
        describe_result(compiler, &program->results[i]);
    for (int i = 0; i < program->given_count; i++)
        describe_result(compiler, &program->given[i]);
    return rpi_compile_resolve(compiler);
}

rp_status rpi_program_compile(rpi_session *session, const rpi_graph *graph, rpi_value_id loss,
                              const rpi_program_options *options, rpi_program **out_program) {
    rpi_program *program = NULL;
    RP_TRY(rpi_alloc(sizeof *program, "a program", &program));
    program->session = session;
    program->graph = graph;
    program->weights = rpi_session_weights(session);
    program->backend = rpi_session_backend(session);
    program->training = options->training;
    program->halves_apart = options->halves_apart;
    rpi_compiler compiler = {.program = program,
                             .options = options,
                             .loss = loss,
                             .kernels = rpi_session_kernels(session),
                             .value_count = rpi_graph_value_count(graph)};
    rp_status status = build(&compiler);
    rpi_free(compiler.places);
    rpi_free(compiler.buffers);
    rpi_free(compiler.reuses);
    if (status != RP_OK) {
        rpi_program_destroy(program);
        return status;
    }
    *out_program = program;
    return RP_OK;
}

rp_dtype rpi_program_handed_on(const rpi_program *program, rpi_value_id value) {
    for (int i = 0; i < program->seed_count; i++)
        if (program->seeds[i] == value && program->seed_values[i] == RP_BF16) return RP_BF16;
    for (int i = 0; i < program->given_count; i++)
        if (program->given[i].value == value && program->given_gradients[i] == RP_BF16)
            return RP_BF16;
    return RP_F32;
}
