/* SPDX-License-Identifier: Apache-2.0
 *
 * hygiene_bad.c - a library that prints and reads by itself: hygiene.sh must refuse it, also where a
 * hardened build gives these calls other names (__printf_chk, __read_chk).
 */
#include <stdio.h>
#include <unistd.h>

long fp8q_bad(int fd, size_t n);

long fp8q_bad(int fd, size_t n)
{
    char buffer[16];
    long got = read(fd, buffer, n);

    printf("%ld %c\n", got, buffer[0]);
    return got;
}
