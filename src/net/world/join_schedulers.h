/* Launchers that set a rank's number, but not where rank 0 serves the store. [pure] */
#ifndef RPI_NET_JOIN_SCHEDULERS_H
#define RPI_NET_JOIN_SCHEDULERS_H

#include "net/world/join.h"

rp_status rpi_join_find_open_mpi(const rpi_environment *environment, rpi_world_info *info);
rp_status rpi_join_find_pmi(const rpi_environment *environment, rpi_world_info *info);
rp_status rpi_join_find_srun(const rpi_environment *environment, rpi_world_info *info);
/* Only a step has ranks: in a batch script SLURM_PROCID is set, too, but does not count. */
rp_status rpi_join_is_slurm_step(const rpi_environment *environment, bool *out_step);
/* The variables of PMI are those that srun sets. */
bool rpi_join_is_pmi_of_srun(const rpi_environment *environment);

#endif
