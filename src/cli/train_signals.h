/* Signals of a rank that trains: SIGUSR1 asks for a checkpoint, SIGTERM and SIGINT for one and
 * the end. What the process was started to ignore stays ignored. */
#ifndef RPI_CLI_TRAIN_SIGNALS_H
#define RPI_CLI_TRAIN_SIGNALS_H

#include <stdbool.h>

/* To be called at the start, so that an early signal does not end the process. */
void rpi_train_take_save_signal(void);
/* Once the ranks have met: until then there is nothing to save, and they end it as ever. Each
 * is taken once: a second one ends the process at once. `says_so`: print a line when it comes;
 * `saves`: with a checkpoint. */
void rpi_train_take_stop_signals(bool says_so, bool saves);

/* Whatever comes from now on ends the process, as ever. */
void rpi_train_drop_stop_signals(void);

/* For rpi_train_hooks: RPI_ASKED_*. */
int rpi_train_asked(void *context);
/* The one that came; SIGTERM when it came to another rank. */
int rpi_train_stop_signal(void);

#endif
