/* In the place of libFuzzer: a target over the files of its corpus, so that whatever once broke
 * it stays mended in every build. usage: fuzz_NAME FOLDER */
#include "fuzz_input.h"

#include <dirent.h>
#include <stdlib.h>

static int replay(const char *folder, const char *name) {
    static uint8_t bytes[1 << 20];
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    uint8_t *exact = malloc(count ? count : 1); /* so that a sanitizer sees what lies behind */
    if (!exact) return 0;
    for (size_t i = 0; i < count; i++) exact[i] = bytes[i];
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
    return 1;
}

int main(int argc, char **argv) {
    int files = 0;
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.') files += replay(argv[1], entry->d_name);
    closedir(folder);
    printf("%d inputs\n", files);
    return files > 0 ? 0 : 1;
}
