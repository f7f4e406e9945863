/* A folder of pictures: one sub-folder for each class, which gives it its name. Pictures in
 * folders below it are of the class, too, as torchvision's ImageFolder has it.
 *
 * Classes are numbered in the order of their names' bytes, pictures of a class follow each
 * other in the order of their paths': neither the file system nor a locale has a say. Links are
 * followed. Names that begin with a dot are passed over; other files that are no pictures, by
 * the ends of their names, are counted and the first of them named.
 *
 * The held-out pictures of Tiny ImageNet lie in one folder, `images`; a file beside it,
 * val_annotations.txt, has the class of each. */
#ifndef RPI_TRAIN_PICTURE_FOLDER_H
#define RPI_TRAIN_PICTURE_FOLDER_H

#include "base/memory.h"
#include "base/regular_file.h"

#include <stdbool.h>
#include <stdint.h>

enum { RPI_PICTURE_CLASSES_MOST = 1 << 20, RPI_OTHERS_TEXT = 320 };

typedef struct rpi_listed_picture {
    const char *class_name, *name; /* the name is a path below the folder of all */
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

/* RP_NOT_FOUND, RP_IO: no such folder; RP_INVALID: fewer classes than `least_classes`, a class
 * without pictures, pictures beside the classes, parts of data in the place of classes (train,
 * test), a link that leads back, or a picture that is listed and not there; RP_UNSUPPORTED:
 * pictures of a format that this build does not read. Messages begin with the path. On failure
 * nothing is left. */
rp_status rpi_picture_folder_open(const char *path, int least_classes,
                                  rpi_picture_folder *out_folder);
void rpi_picture_folder_close(rpi_picture_folder *folder); /* zeros are fine */

/* Number the classes of `folder` as those of `model` are; RP_INVALID: it has one more. */
rp_status rpi_picture_folder_number_as(rpi_picture_folder *folder,
                                       const rpi_picture_folder *model);

/* "PATH/NAME" */
rp_status rpi_picture_folder_path(const rpi_picture_folder *folder, int64_t picture,
                                  char out_path[RPI_PATH_BYTES]);

/* For readers of lists: keep a name in the folder's memory; add a picture by its path below the
 * folder, which is kept, and a class that is; note what is no picture. */
typedef struct rpi_picture_listing {
    rpi_picture_folder *folder;
    int64_t picture_room;
    int class_room;
} rpi_picture_listing;
rp_status rpi_picture_listing_name(rpi_picture_listing *listing, const char *name,
                                   const char **out_name);
rp_status rpi_picture_listing_class(rpi_picture_listing *listing, const char *class_name);
rp_status rpi_picture_listing_add(rpi_picture_listing *listing, const char *name, int label);
void rpi_picture_listing_other(rpi_picture_listing *listing, const char *name);

/* Has the folder a list of classes, as Tiny ImageNet's? And reading it. */
bool rpi_picture_annotations_are_there(const char *path);
rp_status rpi_picture_annotations_read(rpi_picture_listing *listing);

/* Has `path` a sub-folder of this name? */
bool rpi_folder_has(const char *path, const char *name);
/* And is it a part of the data, as train is, with folders of classes in it? It is a class like
 * the others where it holds pictures itself, and other folders beside it are called as no part
 * is: bus, car, train. */
bool rpi_picture_folder_has_part(const char *path, const char *name);

#endif
