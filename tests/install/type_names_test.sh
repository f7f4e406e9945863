#!/bin/sh
# tools/type_names.sh over small trees: names that mean two things are found however they are
# defined, and what only looks so is let pass.
# usage: type_names_test.sh SOURCE_FOLDER
set -u
names=$1/tools/type_names.sh
to=$(mktemp -d) || exit 1
trap 'rm -rf "$to"' EXIT
bad=0
complain() {
    echo "$*"
    bad=1
}
tree() { # TEXT: in one room's header, beside another's that defines rpi_kind in three ways
    rm -rf "$to/tree" && mkdir -p "$to/tree/src/base" "$to/tree/src/net" || exit 1
    cat >"$to/tree/src/base/kinds.h" <<'END'
typedef struct rpi_kind {
    int a;
    union {
        int b;
    } rpi_inner;
} rpi_kind;
typedef enum rpi_mode { RPI_A, RPI_B } rpi_mode;
typedef int (*rpi_call)(void *context);
typedef int rpi_number;
typedef struct rpi_later rpi_later;
struct rpi_tagged {
    int a;
};
END
    printf '%s\n' "$1" >"$to/tree/src/net/other.c"
}
passes() {
    tree "$1"
    said=$(sh "$names" "$to/tree") || complain "refused: $1: $said"
}
fails() { # NAME TEXT
    tree "$2"
    said=$(sh "$names" "$to/tree") && complain "nothing is said of $1: $2"
    case $said in *"$1: src/base/kinds.h src/net/other.c"*) ;; *) complain "$1 is not named: $said" ;; esac
}

fails rpi_kind 'typedef int rpi_kind;'
fails rpi_kind 'typedef struct other { int a; } rpi_kind;'
fails rpi_kind "$(printf 'typedef union rpi_kind {\n    int a;\n} rpi_kind;')"
fails rpi_mode "$(printf 'typedef enum {\n    RPI_C\n} rpi_mode;')"
fails rpi_call 'typedef void (*rpi_call)(int);'
fails rpi_number 'typedef const char *rpi_number;'
fails rpi_tagged "$(printf 'struct rpi_tagged {\n    int b;\n};')"
passes "$(printf 'struct rpi_later {\n    int a;\n};')"  # its definition
passes 'typedef struct rpi_kind rpi_kind;'                # ahead of its definition
passes "$(printf 'struct rpi_kind;\nextern rpi_kind rpi_mode_of(rpi_kind kind);')"
passes "$(printf 'typedef struct kind {\n    int a;\n    struct {\n        int x;\n    } rpi_mode;\n} kind;')" # of the file alone, and a member

cpp() { # TEXT: in a C++ file
    tree ''
    printf '%s\n' "$1" >"$to/tree/src/net/kernels.cu"
    said=$(sh "$names" "$to/tree")
}
for each in 'struct family {' 'template <int A> struct family {' 'class family final' \
    "$(printf 'namespace {\nint a;\n}\nstruct family {')"; do
    cpp "$each" && complain "nothing is said of a class that is not of the file alone: $each"
    case $said in *"family: src/net/kernels.cu"*) ;; *) complain "family is not named: $said" ;; esac
done
cpp "$(printf 'namespace {\nstruct family {\n    int a;\n};\n\nstruct other {\n    int a;\n};\n}\nstruct rpi_call;')" ||
    complain "refused: classes of a file alone: $said"
exit $bad
