/* SPDX-License-Identifier: Apache-2.0
 *
 * date.c - RFC 3339 on the proleptic Gregorian calendar, without the C library's time zones.
 */
#include "base/date.h"

#include <stdio.h>

/* Days since 1970-01-01 of the proleptic Gregorian calendar; years begin in March, so that the leap
 * day is the last of its year.  */
static int64_t days_from_date(int64_t year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, of_era = y % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

void fp8q_time_format(int64_t seconds, char text[FP8Q_TIME_TEXT])
{
    const int64_t last = INT64_C(253402300799); /* of year 9999 */
    seconds = seconds < 0 ? 0 : seconds;
    seconds = seconds > last ? last : seconds;

    int64_t days = seconds / 86400, rest = seconds % 86400;
    int year = 1970, month = 1;
    while (year < 9999 && days_from_date(year + 1, 1, 1) <= days)
        year++;
    while (month < 12 && days_from_date(year, month + 1, 1) <= days)
        month++;

    unsigned day = (unsigned)(days - days_from_date(year, month, 1)) + 1, second = (unsigned)rest;
    /* The remainders change nothing; they show the compiler that the text fits.  */
    snprintf(text, FP8Q_TIME_TEXT, "%04u-%02u-%02uT%02u:%02u:%02uZ", (unsigned)year % 10000,
             (unsigned)month % 100, day % 100, second / 3600 % 100, second / 60 % 60, second % 60);
}

/* @n digits at *@at, which moves on; -1 if there are other characters.  */
static int digits(const char **at, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static bool parse_offset(const char *at, int64_t *seconds_out)
{
    *seconds_out = 0;
    if ((*at == 'Z' || *at == 'z') && !at[1])
        return true;
    int sign = *at == '+' ? 1 : *at == '-' ? -1 : 0;
    at++;
    int hours = sign ? digits(&at, 2) : -1;
    if (hours < 0 || *at++ != ':')
        return false;
    int minutes = digits(&at, 2);
    *seconds_out = sign * (hours * 3600 + minutes * 60);
    return minutes >= 0 && minutes < 60 && hours < 24 && !*at;
}

bool fp8q_time_parse(const char *text, int64_t *seconds_out)
{
    static const char separators[] = "--T::";
    static const int widths[] = {4, 2, 2, 2, 2, 2};
    int f[6];
    for (int i = 0; i < 6; i++) {
        f[i] = digits(&text, widths[i]);
        if (f[i] < 0)
            return false;
        if (i < 5) {
            char c = *text++;
            if (c != separators[i] && !(i == 2 && (c == 't' || c == ' ')))
                return false;
        }
    }

    /* A second numbered 60 is a leap second.  */
    if (f[0] < 1970 || f[1] < 1 || f[1] > 12 || f[2] < 1 || f[2] > days_in_month(f[0], f[1]) ||
        f[3] > 23 || f[4] > 59 || f[5] > 60)
        return false;
    if (*text == '.') {
        text++;
        if (digits(&text, 1) < 0)
            return false;
        while (*text >= '0' && *text <= '9')
            text++;
    }

    int64_t offset;
    if (!parse_offset(text, &offset))
        return false;
    *seconds_out =
        days_from_date(f[0], f[1], f[2]) * 86400 + f[3] * 3600 + f[4] * 60 + f[5] - offset;
    return true;
}
