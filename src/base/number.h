/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h - numbers as text, with a point whatever the locale of the host program.
 */
#ifndef FP8Q_NUMBER_H
#define FP8Q_NUMBER_H

#include <locale.h>
#include <stddef.h>

/* Puts this thread into the C locale until the other one is called with what this one gave.  */
locale_t fp8q_c_locale_enter(void);
void fp8q_c_locale_leave(locale_t before);

/* strtod() and "%.*g" of the C locale.  */
double fp8q_number_parse(const char *text, char **end_out);
void fp8q_number_print(char *buf, size_t cap, int precision, double value);

#endif
