/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c - the C locale for one thread, and numbers in it.
 */
#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>

locale_t fp8q_c_locale_enter(void)
{
    /* Of the C locale there is one object, which is neither made nor freed.  */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);

    return c ? uselocale(c) : (locale_t)0;
}

void fp8q_c_locale_leave(locale_t before)
{
    if (before)
        (void)uselocale(before);
}

double fp8q_number_parse(const char *text, char **end_out)
{
    locale_t before = fp8q_c_locale_enter();
    double value = strtod(text, end_out);

    fp8q_c_locale_leave(before);
    return value;
}

void fp8q_number_print(char *buf, size_t cap, int precision, double value)
{
    locale_t before = fp8q_c_locale_enter();

    snprintf(buf, cap, "%.*g", precision, value);
    fp8q_c_locale_leave(before);
}
