/* The kinds that the catalogue lists, each defined in a file of its own. */
#ifndef RPI_CLI_COMMANDS_H
#define RPI_CLI_COMMANDS_H

#include "cli/command.h"

extern const rpi_command rpi_command_train;
extern const rpi_command rpi_command_verify;
extern const rpi_command rpi_command_run;
extern const rpi_command rpi_command_doctor;
extern const rpi_command rpi_command_data_tokenize;
extern const rpi_command rpi_command_data_info;
extern const rpi_command rpi_command_data_decode;
extern const rpi_command rpi_command_bench_all_reduce;
extern const rpi_command rpi_command_bench_reduce_scatter;
extern const rpi_command rpi_command_bench_all_gather;
extern const rpi_command rpi_command_bench_broadcast;
extern const rpi_command rpi_command_bench_reduce;
extern const rpi_command rpi_command_bench_gather;
extern const rpi_command rpi_command_bench_scatter;
extern const rpi_command rpi_command_bench_all_to_all;
extern const rpi_command rpi_command_bench_neighbor_all_reduce;
extern const rpi_command rpi_command_bench_window_put;
extern const rpi_command rpi_command_bench_send_recv;
extern const rpi_command rpi_command_bench_barrier;
extern const rpi_command rpi_command_bench_codec;
extern const rpi_command rpi_command_bench_link;
extern const rpi_command rpi_command_bench_machine;
extern const rpi_command rpi_command_plan;
extern const rpi_command rpi_command_plan_gossip;
extern const rpi_command rpi_command_plan_local_sgd;
extern const rpi_command rpi_command_plan_pipeline;
extern const rpi_command rpi_command_plan_scaling;
extern const rpi_command rpi_command_plan_failures;
extern const rpi_command rpi_command_plan_spot;
extern const rpi_command rpi_command_plan_cost;
extern const rpi_command rpi_command_plan_break_even;
extern const rpi_command rpi_command_plan_train;
extern const rpi_command rpi_command_plan_check;
extern const rpi_command rpi_command_eval;
extern const rpi_command rpi_command_generate;
extern const rpi_command rpi_command_export;
extern const rpi_command rpi_command_report;
extern const rpi_command rpi_command_info;
extern const rpi_command rpi_command_man;
extern const rpi_command rpi_command_completion;

#endif
