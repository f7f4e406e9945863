#include "cli/commands.h"

static const rpi_command *const catalogue[] = {
    &rpi_command_train,
    &rpi_command_verify,
    &rpi_command_run,
    &rpi_command_doctor,
    &rpi_command_data_tokenize,
    &rpi_command_data_info,
    &rpi_command_data_decode,
    &rpi_command_bench_all_reduce,
    &rpi_command_bench_reduce_scatter,
    &rpi_command_bench_all_gather,
    &rpi_command_bench_broadcast,
    &rpi_command_bench_reduce,
    &rpi_command_bench_gather,
    &rpi_command_bench_scatter,
    &rpi_command_bench_all_to_all,
    &rpi_command_bench_neighbor_all_reduce,
    &rpi_command_bench_window_put,
    &rpi_command_bench_send_recv,
    &rpi_command_bench_barrier,
    &rpi_command_bench_codec,
    &rpi_command_bench_link,
    &rpi_command_bench_machine,
    &rpi_command_plan,
    &rpi_command_plan_gossip,
    &rpi_command_plan_local_sgd,
    &rpi_command_plan_pipeline,
    &rpi_command_plan_failures,
    &rpi_command_plan_spot,
    &rpi_command_plan_cost,
    &rpi_command_plan_break_even,
    &rpi_command_plan_train,
    &rpi_command_plan_check,
    &rpi_command_plan_scaling,
    &rpi_command_eval,
    &rpi_command_generate,
    &rpi_command_export,
    &rpi_command_report,
    &rpi_command_info,
    &rpi_command_man,
    &rpi_command_completion,
};

const rpi_command *rpi_command_at(int index) {
    int count = (int)(sizeof catalogue / sizeof catalogue[0]);
    return index >= 0 && index < count ? catalogue[index] : NULL;
}
