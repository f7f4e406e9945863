/* The OpenMP threads that oneDNN and our own loops share. */
#ifndef RPI_ENGINE_ONEDNN_TEAM_H
#define RPI_ENGINE_ONEDNN_TEAM_H

/* Make parallel regions of the calling thread use `threads` threads, here and in oneDNN; it
 * stays so. Where they fill the cores this process may use, the workers are pinned to one core
 * each, so that two of them never share one while another idles; the calling thread is left
 * alone, because threads it starts later would inherit its place. Nothing is pinned where the
 * environment asked OpenMP for a binding of its own. Cheap when nothing changed. */
void rpi_dnn_team_enter(int threads);

#endif
