/* A dimension of a shape: a number, or a product of named ones such as 2*batch*sequence, which
 * a program binds to numbers when it is compiled (rpi_graph_dimension gives names).
 *
 * In rpi_shape.size a product is a negative number that holds it: 31 bits of coefficient, and
 * for each of 8 names 3 bits of power. So products are values: equal ones compare equal, and
 * ops multiply them without asking the graph. */
#ifndef RPI_ENGINE_DIMENSION_H
#define RPI_ENGINE_DIMENSION_H

#include "base/tensor.h"

#include <stdbool.h>
#include <stddef.h>

enum { RPI_DIMENSIONS = 8 }; /* names in a graph */

/* The index-th name, once. */
int64_t rpi_dimension_symbol(int index);
static inline bool rpi_dimension_is_named(int64_t size) {
    return size < 0;
}
/* false, and nothing set: too large a number or power. */
bool rpi_dimension_multiply(int64_t a, int64_t b, int64_t *out_product);
/* false, and nothing set: a is no multiple of b. */
bool rpi_dimension_divide(int64_t a, int64_t b, int64_t *out_quotient);
/* The number that it is with sizes[i] for the i-th name; false: a name without a size (0),
 * whose index is then in *out_number, or too large a product (-1). */
bool rpi_dimension_bind(int64_t size, const int64_t *sizes, int64_t *out_number);

/* "batch*sequence", "2*batch", "64"; names NULL: "$0*$1", for rpi_dimension_name_all. Returns
 * text. */
const char *rpi_dimension_text(int64_t size, const char *const *names, char *text,
                               size_t bytes);
/* Put names in place of $0, $1 ... in a message of an op, which knows no names. */
void rpi_dimension_name_all(const char *message, const char *const *names, int count,
                            char *text, size_t bytes);

#endif
