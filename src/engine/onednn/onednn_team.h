/* The threads that oneDNN and our own loops share: one team (engine/team/team.h).
 *
 * oneDNN's parallel regions, and those of our own OpenMP loops, call a handful of functions of
 * libgomp. We define these ourselves, and a program's own definition goes before a library's,
 * so that all regions run on one team, which waits as gate.h says, where libgomp spins for
 * milliseconds at each barrier, whoever else wants the processor. Other functions of libgomp
 * must not be called: they would know nothing of the region (onednn_openmp_test looks whether
 * oneDNN does). With another OpenMP than gcc's oneDNN has threads of its own, as ever. */
#ifndef RPI_ENGINE_ONEDNN_TEAM_H
#define RPI_ENGINE_ONEDNN_TEAM_H

/* Make parallel regions of the calling thread use `threads` threads, here and in oneDNN; it
 * stays so. Where the environment asks OpenMP for places (OMP_PROC_BIND, OMP_PLACES,
 * GOMP_CPU_AFFINITY) each worker is bound to its own; else nobody is pinned. Cheap when nothing
 * changed. */
void rpi_dnn_team_enter(int threads);

#endif
