/* SPDX-License-Identifier: Apache-2.0
 *
 * date.h - dates as files spell them.
 */
#ifndef FP8Q_DATE_H
#define FP8Q_DATE_H

#include <stdbool.h>
#include <stdint.h>

/* RFC 3339 in UTC: "2026-01-31T23:59:59Z".  @seconds before 1970 are 1970, after 9999 are the last of 9999.
 * Parsing also takes fractions and numeric offsets.  */
#define FP8Q_TIME_TEXT 32
void fp8q_time_format(int64_t seconds, char text[FP8Q_TIME_TEXT]);
bool fp8q_time_parse(const char *text, int64_t *seconds_out);

#endif
