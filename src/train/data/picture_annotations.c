/* Pictures whose classes stand in a list, as those that Tiny ImageNet holds out:
 *
 *     val/images/val_0.JPEG ...
 *     val/val_annotations.txt       val_0.JPEG<tab>n03444034<tab>0<tab>32<tab>44<tab>62
 *
 * What stands behind the class is where in the picture it is, and is not used. */
#include "train/data/picture_folder.h"

#include "base/status.h"
#include "train/pictures/picture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 1 << 28 };
static const char list_name[] = "val_annotations.txt", folder_name[] = "images";

typedef struct row {
    const char *name, *class_name; /* the first with the folder in front */
} row;

/* What is read of the list. */
typedef struct reader {
    rpi_picture_listing *listing;
    row *rows;
    size_t count, room;
    int line;
} reader;

bool rpi_picture_annotations_are_there(const char *path) {
    char list[RPI_PATH_BYTES];
    struct stat facts;
    if (!rpi_folder_has(path, folder_name)) return false;
    return snprintf(list, sizeof list, "%s/%s", path, list_name) < (int)sizeof list &&
           stat(list, &facts) == 0 && S_ISREG(facts.st_mode);
}

/* ---- rows ---- */

static rp_status refuse(const reader *r, const char *what) {
    return RP_FAIL(CORRUPT, "%s/%s:%d: %s", r->listing->folder->path, list_name, r->line, what);
}

static rp_status add_row(reader *r, const char *name, const char *class_name) {
    char path[RPI_PATH_BYTES], whole[2 * RPI_PATH_BYTES];
    struct stat facts;
    if (snprintf(path, sizeof path, "%s/%s", folder_name, name) >= (int)sizeof path)
        return refuse(r, "a name that is too long");
    if (!rpi_picture_format_of_name(name))
        return refuse(r, "no picture by its name (.jpg, .jpeg, .png)");
    snprintf(whole, sizeof whole, "%s/%s", r->listing->folder->path, path);
    if (stat(whole, &facts) != 0)
        return RP_FAIL(NOT_FOUND, "%s/%s:%d names %s, which is missing",
                       r->listing->folder->path, list_name, r->line, path);
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 256;
        RP_TRY(rpi_grow_array(r->room, room, sizeof *r->rows, "a list of classes", &r->rows));
        r->room = room;
    }
    row *added = &r->rows[r->count++];
    RP_TRY(rpi_picture_listing_name(r->listing, path, &added->name));
    return rpi_picture_listing_name(r->listing, class_name, &added->class_name);
}

static rp_status take_line(reader *r, char *line) {
    r->line++;
    line[strcspn(line, "\r")] = '\0';
    if (!*line) return RP_OK;
    char *rest = line, *name = strsep(&rest, "\t"), *class_name = strsep(&rest, "\t");
    if (!*name || !class_name || !*class_name)
        return refuse(r, "a line is NAME, a tabulator, CLASS");
    return add_row(r, name, class_name);
}

static rp_status read_list(reader *r) {
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%.*s/%s", RPI_PATH_BYTES - (int)sizeof list_name - 2,
             r->listing->folder->path, list_name);
    RP_TRY(rpi_regular_file_read(path, FILE_MOST, &text, &bytes));
    rp_status status = RP_OK;
    char *rest = text;
    for (char *line; status == RP_OK && (line = strsep(&rest, "\n"));)
        status = take_line(r, line);
    rpi_free(text);
    if (status != RP_OK || r->count) return status;
    return RP_FAIL(INVALID, "%s names no pictures", path);
}

/* ---- classes and pictures ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const row *)a)->name, ((const row *)b)->name);
}

static int by_class(const void *a, const void *b) {
    int order = strcmp(((const row *)a)->class_name, ((const row *)b)->class_name);
    return order ? order : by_name(a, b);
}

/* What lies there and is not in the list has no class. Rows are in the order of names. */
static rp_status note_others(reader *r) {
    char path[2 * RPI_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", r->listing->folder->path, folder_name);
    DIR *stream = opendir(path);
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open the folder %s", path);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        row wanted = {.name = path};
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder_name, entry->d_name);
        if (!bsearch(&wanted, r->rows, r->count, sizeof *r->rows, by_name))
            rpi_picture_listing_other(r->listing, path);
    }
    closedir(stream);
    return RP_OK;
}

static rp_status add_all(reader *r) {
    const char *before = NULL;
    qsort(r->rows, r->count, sizeof *r->rows, by_name);
    RP_TRY(note_others(r));
    qsort(r->rows, r->count, sizeof *r->rows, by_class);
    for (size_t i = 0; i < r->count; i++) {
        const row *one = &r->rows[i];
        if (!before || strcmp(before, one->class_name) != 0)
            RP_TRY(rpi_picture_listing_class(r->listing, one->class_name));
        before = one->class_name;
        RP_TRY(rpi_picture_listing_add(r->listing, one->name,
                                       r->listing->folder->class_count - 1));
    }
    return RP_OK;
}

rp_status rpi_picture_annotations_read(rpi_picture_listing *listing) {
    reader r = {.listing = listing};
    rp_status status = read_list(&r);
    if (status == RP_OK) status = add_all(&r);
    rpi_free(r.rows);
    return status;
}
