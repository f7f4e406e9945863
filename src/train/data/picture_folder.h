/* A folder of pictures: one sub-folder for each class, which gives it its name.
 *
 * Classes are numbered in the order of their names' bytes, pictures of a class follow each
 * other in the order of theirs: neither the file system nor a locale has a say. Links are
 * followed. Names that begin with a dot are passed over; other files that are no pictures, by
 * the ends of their names, are counted and the first of them named. Folders below a class are
 * not entered, and are counted among them. */
#ifndef RPI_TRAIN_PICTURE_FOLDER_H
#define RPI_TRAIN_PICTURE_FOLDER_H

#include "base/memory.h"
#include "base/regular_file.h"

#include <stdbool.h>
#include <stdint.h>

enum { RPI_PICTURE_CLASSES_MOST = 1 << 20, RPI_OTHERS_TEXT = 320 };

typedef struct rpi_listed_picture {
    const char *class_name, *name; /* of its folder, of its file there */
    int32_t label;
} rpi_listed_picture;

typedef struct rpi_picture_folder {
    char path[RPI_PATH_BYTES];
    rpi_arena *names;
    const char **classes;
    int class_count;
    rpi_listed_picture *pictures;
    int64_t count;
    int64_t others;                    /* files that are no pictures */
    char others_text[RPI_OTHERS_TEXT]; /* the first of them: "cat/notes.txt, dog/more" */
} rpi_picture_folder;

/* RP_NOT_FOUND, RP_IO: no such folder; RP_INVALID: no classes, a class without pictures, or
 * pictures beside the classes; RP_UNSUPPORTED: pictures of a format that this build does not
 * read. Messages begin with the path. On failure nothing is left. */
rp_status rpi_picture_folder_open(const char *path, rpi_picture_folder *out_folder);
void rpi_picture_folder_close(rpi_picture_folder *folder); /* zeros are fine */

/* Number the classes of `folder` as those of `model` are; RP_INVALID: it has one more. */
rp_status rpi_picture_folder_number_as(rpi_picture_folder *folder,
                                       const rpi_picture_folder *model);

/* "PATH/CLASS/NAME" */
rp_status rpi_picture_folder_path(const rpi_picture_folder *folder, int64_t picture,
                                  char out_path[RPI_PATH_BYTES]);

/* Has `path` a sub-folder of this name? */
bool rpi_folder_has(const char *path, const char *name);

#endif
