/* Folders of the file system. */
#ifndef RPI_BASE_FOLDER_H
#define RPI_BASE_FOLDER_H

#include "redpoll/status.h"

/* Make a folder with its parents; one that is there is fine. RP_IO names the one that cannot be
 * made, or what is there and is none. */
rp_status rpi_folder_make(const char *path);

#endif
