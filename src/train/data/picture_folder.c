#include "train/data/picture_folder.h"

#include "base/status.h"
#include "train/pictures/picture.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIRST_ROOM = 64 };

typedef enum entry_kind { FILE_ENTRY, FOLDER_ENTRY, OTHER_ENTRY } entry_kind;

/* What is being listed. */
typedef struct listing {
    rpi_picture_folder *folder;
    int64_t picture_room;
    int class_room;
} listing;

/* ---- names ---- */

static rp_status keep_name(rpi_picture_folder *f, const char *name, const char **out_name) {
    char *copy = NULL;
    size_t bytes = strlen(name) + 1;
    RP_TRY(rpi_arena_alloc(f->names, bytes, &copy));
    memcpy(copy, name, bytes);
    *out_name = copy;
    return RP_OK;
}

static rp_status join(const char *folder, const char *name, char out[RPI_PATH_BYTES]) {
    if (snprintf(out, RPI_PATH_BYTES, "%s/%s", folder, name) < RPI_PATH_BYTES) return RP_OK;
    return RP_FAIL(INVALID, "the path %.200s.../%.200s is longer than %d bytes", folder, name,
                   RPI_PATH_BYTES - 1);
}

static void note_other(rpi_picture_folder *f, const char *class_name, const char *name) {
    size_t used = strlen(f->others_text);
    f->others++;
    if (used + strlen(class_name) + strlen(name) + 8 > sizeof f->others_text) return;
    snprintf(f->others_text + used, sizeof f->others_text - used, "%s%s%s%s", used ? ", " : "",
             class_name, *class_name ? "/" : "", name);
}

/* Some file systems do not say, and a link is what it leads to. */
static rp_status kind_of(const char *folder, const struct dirent *entry, entry_kind *out_kind) {
    char path[RPI_PATH_BYTES];
    struct stat facts;
    if (entry->d_type == DT_REG || entry->d_type == DT_DIR) {
        *out_kind = entry->d_type == DT_REG ? FILE_ENTRY : FOLDER_ENTRY;
        return RP_OK;
    }
    RP_TRY(join(folder, entry->d_name, path));
    if (stat(path, &facts) != 0) {
        if (errno == ENOENT) return RP_FAIL(NOT_FOUND, "%s is a link that leads nowhere", path);
        return RP_FAIL_ERRNO(IO, "cannot look at %s", path);
    }
    *out_kind = S_ISREG(facts.st_mode)   ? FILE_ENTRY
                : S_ISDIR(facts.st_mode) ? FOLDER_ENTRY
                                         : OTHER_ENTRY;
    return RP_OK;
}

/* ---- going through folders ---- */

typedef rp_status (*visitor)(listing *l, const char *name, entry_kind kind, int class_index);

static rp_status visit(listing *l, const char *path, int class_index, visitor see) {
    DIR *stream = opendir(path);
    if (!stream && errno == ENOENT) return RP_FAIL(NOT_FOUND, "there is no folder %s", path);
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open the folder %s", path);
    rp_status status = RP_OK;
    errno = 0;
    for (struct dirent *entry; status == RP_OK && (entry = readdir(stream)) != NULL;) {
        entry_kind kind = OTHER_ENTRY;
        if (entry->d_name[0] == '.') continue;
        status = kind_of(path, entry, &kind);
        if (status == RP_OK) status = see(l, entry->d_name, kind, class_index);
        errno = 0;
    }
    if (status == RP_OK && errno) status = RP_FAIL_ERRNO(IO, "cannot list the folder %s", path);
    closedir(stream);
    return status;
}

static rp_status add_class(listing *l, const char *name, entry_kind kind, int class_index) {
    (void)class_index;
    rpi_picture_folder *f = l->folder;
    if (kind != FOLDER_ENTRY && rpi_picture_format_of_name(name))
        return RP_FAIL(INVALID,
                       "%s holds pictures itself (%s): put those of each class into a "
                       "sub-folder, whose name is the class's",
                       f->path, name);
    if (kind != FOLDER_ENTRY) {
        note_other(f, "", name);
        return RP_OK;
    }
    if (f->class_count == RPI_PICTURE_CLASSES_MOST)
        return RP_FAIL(UNSUPPORTED, "%s has more than %d classes", f->path, f->class_count);
    if (f->class_count == l->class_room) {
        int room = l->class_room ? l->class_room * 2 : FIRST_ROOM;
        RP_TRY(rpi_grow_array((size_t)l->class_room, (size_t)room, sizeof *f->classes,
                              "classes", &f->classes));
        l->class_room = room;
    }
    return keep_name(f, name, &f->classes[f->class_count++]);
}

static rp_status add_picture(listing *l, const char *name, entry_kind kind, int class_index) {
    rpi_picture_folder *f = l->folder;
    const rpi_picture_format *format = rpi_picture_format_of_name(name);
    if (kind != FILE_ENTRY || !format) {
        note_other(f, f->classes[class_index], name);
        return RP_OK;
    }
    rp_status status = rpi_picture_format_check(format);
    if (status != RP_OK)
        return rpi_fail_context(status, "%s/%s/%s: ", f->path, f->classes[class_index], name);
    if (f->count == l->picture_room) {
        int64_t room = l->picture_room ? l->picture_room * 2 : FIRST_ROOM;
        RP_TRY(rpi_grow_array((size_t)l->picture_room, (size_t)room, sizeof *f->pictures,
                              "the list of pictures", &f->pictures));
        l->picture_room = room;
    }
    rpi_listed_picture *picture = &f->pictures[f->count];
    RP_TRY(keep_name(f, name, &picture->name));
    picture->class_name = f->classes[class_index];
    picture->label = class_index;
    f->count++;
    return RP_OK;
}

/* ---- order: of bytes, whatever the locale ---- */

static int compare_classes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_pictures(const void *a, const void *b) {
    return strcmp(((const rpi_listed_picture *)a)->name, ((const rpi_listed_picture *)b)->name);
}

static rp_status list_class(listing *l, int class_index) {
    rpi_picture_folder *f = l->folder;
    char path[RPI_PATH_BYTES];
    int64_t first = f->count;
    RP_TRY(join(f->path, f->classes[class_index], path));
    RP_TRY(visit(l, path, class_index, add_picture));
    if (f->count == first)
        return RP_FAIL(INVALID,
                       "%s holds no pictures (.jpg, .jpeg, .png): fill it, or take it away if "
                       "it is no class",
                       path);
    qsort(f->pictures + first, (size_t)(f->count - first), sizeof *f->pictures,
          compare_pictures);
    return RP_OK;
}

static rp_status list(listing *l) {
    enum { ARENA_BLOCK = 1 << 16 };
    rpi_picture_folder *f = l->folder;
    RP_TRY(rpi_arena_create(ARENA_BLOCK, &f->names));
    RP_TRY(visit(l, f->path, 0, add_class));
    if (f->class_count < 2)
        return RP_FAIL(INVALID,
                       "%s has %d sub-folder%s; one for each class is wanted, two at least",
                       f->path, f->class_count, f->class_count == 1 ? "" : "s");
    qsort(f->classes, (size_t)f->class_count, sizeof *f->classes, compare_classes);
    for (int c = 0; c < f->class_count; c++) RP_TRY(list_class(l, c));
    if (f->count > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED, "%s holds %lld pictures; 2^32 - 1 are the most", f->path,
                       (long long)f->count);
    return RP_OK;
}

rp_status rpi_picture_folder_open(const char *path, rpi_picture_folder *out_folder) {
    rpi_picture_folder folder = {.count = 0};
    listing l = {.folder = &folder};
    if (snprintf(folder.path, sizeof folder.path, "%s", path) >= (int)sizeof folder.path)
        return RP_FAIL(INVALID, "the path %.200s... is longer than %d bytes", path,
                       RPI_PATH_BYTES - 1);
    rp_status status = list(&l);
    if (status == RP_OK)
        *out_folder = folder;
    else
        rpi_picture_folder_close(&folder);
    return status;
}

void rpi_picture_folder_close(rpi_picture_folder *folder) {
    rpi_arena_destroy(folder->names);
    rpi_free(folder->classes);
    rpi_free(folder->pictures);
    *folder = (rpi_picture_folder){0};
}

/* ---- using it ---- */

rp_status rpi_picture_folder_number_as(rpi_picture_folder *folder,
                                       const rpi_picture_folder *model) {
    const char **found = NULL;
    for (int64_t i = 0; i < folder->count; i++) {
        rpi_listed_picture *picture = &folder->pictures[i];
        if (!found || strcmp(*found, picture->class_name) != 0)
            found = bsearch(&picture->class_name, model->classes, (size_t)model->class_count,
                            sizeof *found, compare_classes);
        if (!found)
            return RP_FAIL(INVALID, "%s has the class '%s', which %s has not", folder->path,
                           picture->class_name, model->path);
        picture->label = (int32_t)(found - model->classes);
    }
    return RP_OK;
}

rp_status rpi_picture_folder_path(const rpi_picture_folder *folder, int64_t picture,
                                  char out_path[RPI_PATH_BYTES]) {
    const rpi_listed_picture *p = &folder->pictures[picture];
    if (snprintf(out_path, RPI_PATH_BYTES, "%s/%s/%s", folder->path, p->class_name, p->name) <
        RPI_PATH_BYTES)
        return RP_OK;
    return RP_FAIL(INVALID, "the path %.200s.../%.200s/%.200s is longer than %d bytes",
                   folder->path, p->class_name, p->name, RPI_PATH_BYTES - 1);
}

bool rpi_folder_has(const char *path, const char *name) {
    char text[RPI_PATH_BYTES];
    struct stat facts;
    if (snprintf(text, sizeof text, "%s/%s", path, name) >= (int)sizeof text) return false;
    return stat(text, &facts) == 0 && S_ISDIR(facts.st_mode);
}
