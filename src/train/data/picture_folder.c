#include "train/data/picture_folder.h"

#include "base/status.h"
#include "train/pictures/picture.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { DEEPEST = 32 };

typedef enum entry_kind { FILE_ENTRY, FOLDER_ENTRY, OTHER_ENTRY } entry_kind;

/* Where a walk is: folders that are open, one below the other. */
typedef struct walk {
    rpi_picture_listing *listing;
    int label; /* of the class */
    int depth;
    dev_t devices[DEEPEST];
    ino_t inodes[DEEPEST];
} walk;

/* ---- names ---- */

static rp_status join(const char *folder, const char *name, char out[RPI_PATH_BYTES]) {
    if (snprintf(out, RPI_PATH_BYTES, "%s%s%s", folder, *folder ? "/" : "", name) <
        RPI_PATH_BYTES)
        return RP_OK;
    return RP_FAIL(INVALID, "the path %.200s.../%.200s is longer than %d bytes", folder, name,
                   RPI_PATH_BYTES - 1);
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

/* What stands in the folder `below` that of all; "" is that itself. */
typedef rp_status (*visitor)(walk *w, const char *below, const char *name, entry_kind kind);

static rp_status visit_entries(walk *w, DIR *stream, const char *path, const char *below,
                               visitor see) {
    rp_status status = RP_OK;
    errno = 0;
    for (struct dirent *entry; status == RP_OK && (entry = readdir(stream)) != NULL;) {
        entry_kind kind = OTHER_ENTRY;
        if (entry->d_name[0] == '.') continue;
        status = kind_of(path, entry, &kind);
        if (status == RP_OK) status = see(w, below, entry->d_name, kind);
        errno = 0;
    }
    if (status == RP_OK && errno) status = RP_FAIL_ERRNO(IO, "cannot list the folder %s", path);
    return status;
}

/* A link to a folder above would be walked for ever. */
static rp_status enter(walk *w, DIR *stream, const char *path) {
    struct stat facts;
    if (fstat(dirfd(stream), &facts) != 0) return RP_FAIL_ERRNO(IO, "cannot look at %s", path);
    for (int i = 0; i < w->depth; i++)
        if (w->devices[i] == facts.st_dev && w->inodes[i] == facts.st_ino)
            return RP_FAIL(INVALID, "%s is a link that leads back to a folder above it", path);
    if (w->depth == DEEPEST)
        return RP_FAIL(INVALID, "%s: %d folders below each other are the most", path, DEEPEST);
    w->devices[w->depth] = facts.st_dev;
    w->inodes[w->depth++] = facts.st_ino;
    return RP_OK;
}

static rp_status visit(walk *w, const char *below, visitor see) {
    char path[RPI_PATH_BYTES];
    const char *root = w->listing->folder->path;
    RP_TRY(*below ? join(root, below, path) : join("", root, path));
    DIR *stream = opendir(path);
    if (!stream && errno == ENOENT) return RP_FAIL(NOT_FOUND, "there is no folder %s", path);
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open the folder %s", path);
    rp_status status = enter(w, stream, path);
    if (status == RP_OK) {
        status = visit_entries(w, stream, path, below, see);
        w->depth--;
    }
    closedir(stream);
    return status;
}

static rp_status add_class(walk *w, const char *below, const char *name, entry_kind kind) {
    (void)below;
    rpi_picture_listing *l = w->listing;
    const char *kept = NULL;
    if (kind != FOLDER_ENTRY && rpi_picture_format_of_name(name))
        return RP_FAIL(INVALID,
                       "%s holds pictures itself (%s): put those of each class into a "
                       "sub-folder, whose name is the class's",
                       l->folder->path, name);
    if (kind != FOLDER_ENTRY) {
        rpi_picture_listing_other(l, name);
        return RP_OK;
    }
    RP_TRY(rpi_picture_listing_name(l, name, &kept));
    return rpi_picture_listing_class(l, kept);
}

static rp_status add_picture(walk *w, const char *below, const char *name, entry_kind kind) {
    char path[RPI_PATH_BYTES];
    const char *kept = NULL;
    RP_TRY(join(below, name, path));
    if (kind == FOLDER_ENTRY) return visit(w, path, add_picture);
    if (kind != FILE_ENTRY || !rpi_picture_format_of_name(name)) {
        rpi_picture_listing_other(w->listing, path);
        return RP_OK;
    }
    RP_TRY(rpi_picture_listing_name(w->listing, path, &kept));
    return rpi_picture_listing_add(w->listing, kept, w->label);
}

/* ---- order: of bytes, whatever the locale ---- */

static int compare_classes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_pictures(const void *a, const void *b) {
    return strcmp(((const rpi_listed_picture *)a)->name, ((const rpi_listed_picture *)b)->name);
}

/* ---- parts of data, and classes that are called so ---- */

static bool is_called_a_part(const char *name) {
    static const char *const parts[] = {"train", "training", "test",      "testing",
                                        "val",   "valid",    "validation"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcasecmp(name, parts[i]) == 0) return true;
    return false;
}

static bool is_picture(const char *name, entry_kind kind) {
    return kind != FOLDER_ENTRY && rpi_picture_format_of_name(name);
}

static bool is_folder_of_no_part(const char *name, entry_kind kind) {
    return kind == FOLDER_ENTRY && !is_called_a_part(name);
}

/* Has the folder an entry of this kind? */
static bool has_entry(const char *path, bool (*is_it)(const char *name, entry_kind kind)) {
    DIR *stream = opendir(path);
    bool found = false;
    for (const struct dirent *entry; stream && !found && (entry = readdir(stream)) != NULL;) {
        entry_kind kind = OTHER_ENTRY;
        bool is_hidden = entry->d_name[0] == '.';
        found =
            !is_hidden && kind_of(path, entry, &kind) == RP_OK && is_it(entry->d_name, kind);
    }
    if (stream) closedir(stream);
    return found;
}

bool rpi_picture_folder_has_part(const char *path, const char *name) {
    char text[RPI_PATH_BYTES];
    if (!rpi_folder_has(path, name) || join(path, name, text) != RP_OK) return false;
    return !has_entry(text, is_picture) || !has_entry(path, is_folder_of_no_part);
}

/* Pictures of a class that all lie in folders below "train" or "test" are of many classes. */
static rp_status check_part(const rpi_picture_folder *f, int label, int64_t first) {
    const char *name = f->classes[label];
    for (int64_t i = first; i < f->count; i++)
        if (!strchr(f->pictures[i].name + strlen(name) + 1, '/')) return RP_OK;
    bool trains = strncasecmp(name, "train", strlen("train")) == 0;
    if (!is_called_a_part(name)) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s/%s is no class, but has folders of its own: name the parts, as "
                   "images:%s/%s,validation=%s/%s",
                   f->path, name, f->path, trains ? name : "TRAINING", f->path,
                   trains ? "VALIDATION" : name);
}

static rp_status list_class(rpi_picture_listing *l, int label) {
    rpi_picture_folder *f = l->folder;
    walk w = {.listing = l, .label = label};
    int64_t first = f->count;
    RP_TRY(visit(&w, f->classes[label], add_picture));
    if (f->count == first)
        return RP_FAIL(INVALID,
                       "%s/%s holds no pictures (.jpg, .jpeg, .png): fill it, or take it away "
                       "if it is no class",
                       f->path, f->classes[label]);
    qsort(f->pictures + first, (size_t)(f->count - first), sizeof *f->pictures,
          compare_pictures);
    return check_part(f, label, first);
}

static rp_status list_classes(rpi_picture_listing *l, int least) {
    rpi_picture_folder *f = l->folder;
    walk w = {.listing = l};
    RP_TRY(visit(&w, "", add_class));
    if (f->class_count < least)
        return RP_FAIL(INVALID,
                       "%s has %d sub-folder%s; one for each class is wanted, %s at least",
                       f->path, f->class_count, f->class_count == 1 ? "" : "s",
                       least == 1 ? "one" : "two");
    qsort(f->classes, (size_t)f->class_count, sizeof *f->classes, compare_classes);
    for (int c = 0; c < f->class_count; c++) RP_TRY(list_class(l, c));
    return RP_OK;
}

static rp_status list(rpi_picture_listing *l, int least) {
    enum { ARENA_BLOCK = 1 << 16 };
    rpi_picture_folder *f = l->folder;
    RP_TRY(rpi_arena_create(ARENA_BLOCK, &f->names));
    RP_TRY(rpi_picture_annotations_are_there(f->path) ? rpi_picture_annotations_read(l)
                                                      : list_classes(l, least));
    if (f->count > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED, "%s holds %lld pictures; 2^32 - 1 are the most", f->path,
                       (long long)f->count);
    return RP_OK;
}

rp_status rpi_picture_folder_open(const char *path, int least_classes,
                                  rpi_picture_folder *out_folder) {
    rpi_picture_folder folder = {.count = 0};
    rpi_picture_listing l = {.folder = &folder};
    if (snprintf(folder.path, sizeof folder.path, "%s", path) >= (int)sizeof folder.path)
        return RP_FAIL(INVALID, "the path %.200s... is longer than %d bytes", path,
                       RPI_PATH_BYTES - 1);
    rp_status status = list(&l, least_classes);
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
    return join(folder->path, p->name, out_path);
}
