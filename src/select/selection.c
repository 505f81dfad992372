/* SPDX-License-Identifier: Apache-2.0
 *
 * selection.c - the end of a selection.
 */
#include "select/selection.h"

#include <stdlib.h>

void fp8q_selection_reset(struct fp8q_selection *s)
{
    free(s->decisions);
    *s = (struct fp8q_selection){0};
}
