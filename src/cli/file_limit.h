/* A limit on the size of files (ulimit -f) is an error like a full disk, for which the file is
 * named; left alone, it is a signal, SIGXFSZ, that ends the process without a word. */
#ifndef RPI_CLI_FILE_LIMIT_H
#define RPI_CLI_FILE_LIMIT_H

/* From now on writing beyond the limit fails. */
void rpi_file_limit_heed(void);
/* As it was: in a child, before it becomes another program. */
void rpi_file_limit_restore(void);

#endif
