/* SPDX-License-Identifier: Apache-2.0
 *
 * list.c - which kernel variants were built, and the choice among them.  The order of the list is
 * the order of preference; CMakeLists.txt defines FP8Q_HAVE_* where it adds a file.
 */
#include "kernel/kernel.h"

#include <string.h>

#include "kernel/variants.h"

const struct fp8q_kernel *const fp8q_kernels[] = {
#ifdef FP8Q_HAVE_AVX512
    &fp8q_kernel_avx512,
#endif
#ifdef FP8Q_HAVE_AVX2
    &fp8q_kernel_avx2,
#endif
#ifdef FP8Q_HAVE_NEON
    &fp8q_kernel_neon,
#endif
    &fp8q_kernel_scalar, NULL,
};

const struct fp8q_kernel *fp8q_kernel_select(const char *name)
{
    /* Without a name, the first that this machine can run is the best.  */
    for (size_t i = 0; fp8q_kernels[i]; i++)
        if ((!name || strcmp(name, fp8q_kernels[i]->name) == 0) && fp8q_kernels[i]->usable())
            return fp8q_kernels[i];
    return NULL;
}

/* Halves: lane i takes lane i + 8, then i + 4, i + 2, i + 1.  */
double fp8q_error_total(const double lanes[16])
{
    double sums[16];
    memcpy(sums, lanes, sizeof(sums));

    for (size_t half = 8; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            sums[i] += sums[i + half];

    return sums[0];
}
