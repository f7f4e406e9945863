/* What readers of folders and of lists add to a folder of pictures. */
#include "base/status.h"
#include "train/data/picture_folder.h"
#include "train/pictures/picture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST_ROOM = 64 };

rp_status rpi_picture_listing_name(rpi_picture_listing *l, const char *name,
                                   const char **out_name) {
    char *copy = NULL;
    size_t bytes = strlen(name) + 1;
    RP_TRY(rpi_arena_alloc(l->folder->names, bytes, &copy));
    memcpy(copy, name, bytes);
    *out_name = copy;
    return RP_OK;
}

void rpi_picture_listing_other(rpi_picture_listing *l, const char *name) {
    rpi_picture_folder *f = l->folder;
    size_t used = strlen(f->others_text);
    f->others++;
    if (used + strlen(name) + 8 > sizeof f->others_text) return;
    snprintf(f->others_text + used, sizeof f->others_text - used, "%s%s", used ? ", " : "",
             name);
}

rp_status rpi_picture_listing_class(rpi_picture_listing *l, const char *name) {
    rpi_picture_folder *f = l->folder;
    if (f->class_count == RPI_PICTURE_CLASSES_MOST)
        return RP_FAIL(UNSUPPORTED, "%s has more than %d classes", f->path, f->class_count);
    if (f->class_count == l->class_room) {
        int room = l->class_room ? l->class_room * 2 : FIRST_ROOM;
        RP_TRY(rpi_grow_array((size_t)l->class_room, (size_t)room, sizeof *f->classes,
                              "classes", &f->classes));
        l->class_room = room;
    }
    f->classes[f->class_count++] = name;
    return RP_OK;
}

rp_status rpi_picture_listing_add(rpi_picture_listing *l, const char *name, int label) {
    rpi_picture_folder *f = l->folder;
    rp_status status = rpi_picture_format_check(rpi_picture_format_of_name(name));
    if (status != RP_OK) return rpi_fail_context(status, "%s/%s: ", f->path, name);
    if (f->count == l->picture_room) {
        int64_t room = l->picture_room ? l->picture_room * 2 : FIRST_ROOM;
        RP_TRY(rpi_grow_array((size_t)l->picture_room, (size_t)room, sizeof *f->pictures,
                              "the list of pictures", &f->pictures));
        l->picture_room = room;
    }
    f->pictures[f->count++] =
        (rpi_listed_picture){.class_name = f->classes[label], .name = name, .label = label};
    return RP_OK;
}

bool rpi_folder_has(const char *path, const char *name) {
    char text[RPI_PATH_BYTES];
    struct stat facts;
    if (snprintf(text, sizeof text, "%s/%s", path, name) >= (int)sizeof text) return false;
    return stat(text, &facts) == 0 && S_ISDIR(facts.st_mode);
}
