/* Makes a limit on the size of files (ulimit -f) an error like a full disk, which names the
 * file. Without this the signal SIGXFSZ would end the process without a message. */
#ifndef RPI_CLI_FILE_LIMIT_H
#define RPI_CLI_FILE_LIMIT_H

/* From now on writing beyond the limit fails. */
void rpi_file_limit_heed(void);
/* Restores the former state: in a child, before it becomes another program. */
void rpi_file_limit_restore(void);

#endif
