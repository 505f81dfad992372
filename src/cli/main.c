/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "fp8q.h"

int main(void)
{
    puts("fp8q " FP8Q_VERSION);
    return 0;
}
