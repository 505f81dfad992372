/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.c - UTF-8, strictly.
 */
#include "base/utf8.h"

#include <string.h>

/* Bytes of the character that begins with @lead; 0 if none does.  */
static size_t sequence_length(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if ((lead & 0xE0) == 0xC0)
        return 2;
    if ((lead & 0xF0) == 0xE0)
        return 3;
    return (lead & 0xF8) == 0xF0 ? 4 : 0;
}

size_t fp8q_utf8_decode(const char *text, size_t len, uint32_t *cp_out)
{
    const unsigned char *s = (const unsigned char *)text;
    /* Smallest value that needs this many bytes: anything below is an overlong form.  */
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (len == 0)
        return 0;

    size_t n = sequence_length(s[0]);
    if (n == 0 || n > len)
        return 0;

    uint32_t cp = n == 1 ? s[0] : s[0] & (0x7FU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        cp = cp << 6 | (s[i] & 0x3FU);
    }

    if (cp < smallest[n] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        return 0;
    *cp_out = cp;
    return n;
}

size_t fp8q_utf8_encode(char dst[4], uint32_t cp)
{
    if (cp < 0x80) {
        dst[0] = (char)cp;
        return 1;
    }

    size_t n = 2;
    if (cp >= 0x800)
        n++;
    if (cp >= 0x10000)
        n++;
    for (size_t i = n - 1; i > 0; i--) {
        dst[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    dst[0] = (char)(0xF00U >> n | cp); /* 0xC0, 0xE0, 0xF0 in the low byte for 2, 3, 4 */
    return n;
}

bool fp8q_utf8_is_valid(const char *text)
{
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        uint32_t ignored;
        n = fp8q_utf8_decode(text, left, &ignored);
        if (n == 0)
            return false;
    }
    return true;
}
