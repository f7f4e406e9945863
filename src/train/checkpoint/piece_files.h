/* The parameters and optimizer state of a checkpoint, written in any layout:
 *
 *     model.safetensors                     whole tensors, as a rank that holds all of them has
 *                                           them; where ranks saved pieces, what nobody cuts,
 *                                           and in its metadata the number of those ranks
 *     rank-R-of-N-step-S.safetensors        beside what belongs to the rank alone, its pieces,
 *                                           of which the metadata says what they are
 *
 * A tensor is one entry of the first file, or pieces in the others, which contain each of its
 * elements once. A reader asks for a piece (piece.h) and gets it, from any number of stored
 * pieces. */
#ifndef RPI_TRAIN_PIECE_FILES_H
#define RPI_TRAIN_PIECE_FILES_H

#include "train/checkpoint/piece.h"
#include "train/checkpoint/safetensors.h"

/* ---- writing: lists of a rank's own ---- */

/* The pieces of one file. Names of tensors are copied. */
typedef struct rpi_piece_list {
    rpi_named_tensor *tensors; /* for rpi_safetensors_write() */
    int count, room;
    struct cJSON *pieces;
    char *text; /* for the metadata */
} rpi_piece_list;

/* The key of the list of pieces in the metadata of a rank's file, and the key of the number of
 * ranks with such files in that of a model. */
#define RPI_PIECES_KEY      "pieces"
#define RPI_PIECE_RANKS_KEY "piece_ranks"

/* data: the piece's elements, borrowed until the file is written. */
rp_status rpi_piece_list_add(rpi_piece_list *list, const rpi_tensor_piece *piece,
                             const float *data);
/* Adds all that a rank of a grid saves of a tensor; elements: all that its tensor rank holds.
 */
rp_status rpi_piece_list_share(rpi_piece_list *list, const rpi_tensor_piece *tensor,
                               const rpi_piece_saver *saver, const float *elements);
/* The text of RPI_PIECES_KEY, owned by the list. */
rp_status rpi_piece_list_text(rpi_piece_list *list, const char **out_text);
void rpi_piece_list_close(rpi_piece_list *list); /* zeros are fine */

/* ---- reading ---- */

typedef struct rpi_piece_files rpi_piece_files;

/* `model` is borrowed, open and verified; folder: where it lies. Opens the files that it names,
 * and checks that they contain each element of every tensor once. RP_NOT_FOUND, RP_CORRUPT and
 * RP_IO name the file, or the tensor and the element that is in no piece or in two. */
rp_status rpi_piece_files_open(const rpi_safetensors *model, const char *folder,
                               rpi_piece_files **out_files);
void rpi_piece_files_close(rpi_piece_files *files); /* NULL is fine */

/* Reads the elements of a piece, in the order of the rank that asks. RP_NOT_FOUND: there is no
 * such tensor; RP_MISMATCH: it has another shape, both are named; RP_CORRUPT: an element is NaN
 * or infinite. */
rp_status rpi_piece_files_read(const rpi_piece_files *files, const rpi_tensor_piece *wanted,
                               float *out);
/* Calls the function with each tensor of the checkpoint, without its data: first those of the
 * model's own file in their order, then those in pieces, by name. The first failure ends it. */
typedef rp_status (*rpi_piece_tensor_function)(void *context, const rpi_named_tensor *tensor);
rp_status rpi_piece_files_each(const rpi_piece_files *files, rpi_piece_tensor_function each,
                               void *context);
bool rpi_piece_files_has(const rpi_piece_files *files, const char *tensor);
/* Reads a whole tensor. */
rp_status rpi_piece_files_read_whole(const rpi_piece_files *files, const char *tensor,
                                     const rpi_shape *shape, float *out);
/* The rank whose file has an element of a tensor, numbered in the whole tensor; -1: the model's
 * own file, which belongs to all ranks, has it. */
int rpi_piece_files_rank_of(const rpi_piece_files *files, const char *tensor, int64_t element);

#endif
