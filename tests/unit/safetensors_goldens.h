/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors_goldens.h - headers as the official writer makes them (Python package safetensors
 * 0.8.0, serialize()), in hex, with the input that gives them.  Included by
 * test_format_safetensors.c only.
 */
/* clang-format off */
static const struct golden goldens[] = {
    {.what = "no tensor, no metadata",
     .hex =
         "08000000000000007b7d202020202020",
     .n_tensors = 0},
    {.what = "no tensor, one metadata key",
     .hex =
         "20000000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a22707422"
         "7d7d",
     .n_tensors = 0,
     .metadata = {"format", "pt", 6, 2}},
    {.what = "one F32",
     .hex =
         "60000000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a22707422"
         "7d2c22776569676874223a7b226474797065223a22463332222c227368617065223a5b322c32"
         "5d2c22646174615f6f666673657473223a5b302c31365d7d7d202020",
     .n_tensors = 1,
     .tensors = {
         {.name = "weight", .shape = (const uint64_t[]){2, 2}, .begin = 0, .end = 16, .ndim = 2, .dtype = FP8Q_F32},
     },
     .metadata = {"format", "pt", 6, 2}},
    {.what = "order by dtype, then name",
     .hex =
         "70010000000000007b225f5f6d657461646174615f5f223a7b22666f726d6174223a22707422"
         "7d2c2269223a7b226474797065223a22493634222c227368617065223a5b5d2c22646174615f"
         "6f666673657473223a5b302c385d7d2c2273223a7b226474797065223a22463332222c227368"
         "617065223a5b312c315d2c22646174615f6f666673657473223a5b382c31325d7d2c2262223a"
         "7b226474797065223a2242463136222c227368617065223a5b315d2c22646174615f6f666673"
         "657473223a5b31322c31345d7d2c227a223a7b226474797065223a2242463136222c22736861"
         "7065223a5b335d2c22646174615f6f666673657473223a5b31342c32305d7d2c2261223a7b22"
         "6474797065223a2246385f45344d33222c227368617065223a5b345d2c22646174615f6f6666"
         "73657473223a5b32302c32345d7d2c226d223a7b226474797065223a22424f4f4c222c227368"
         "617065223a5b325d2c22646174615f6f666673657473223a5b32342c32365d7d7d20",
     .n_tensors = 6,
     .tensors = {
         {.name = "i", .shape = NULL, .begin = 0, .end = 8, .ndim = 0, .dtype = FP8Q_I64},
         {.name = "s", .shape = (const uint64_t[]){1, 1}, .begin = 8, .end = 12, .ndim = 2, .dtype = FP8Q_F32},
         {.name = "b", .shape = (const uint64_t[]){1}, .begin = 12, .end = 14, .ndim = 1, .dtype = FP8Q_BF16},
         {.name = "z", .shape = (const uint64_t[]){3}, .begin = 14, .end = 20, .ndim = 1, .dtype = FP8Q_BF16},
         {.name = "a", .shape = (const uint64_t[]){4}, .begin = 20, .end = 24, .ndim = 1, .dtype = FP8Q_F8_E4M3},
         {.name = "m", .shape = (const uint64_t[]){2}, .begin = 24, .end = 26, .ndim = 1, .dtype = FP8Q_BOOL},
     },
     .metadata = {"format", "pt", 6, 2}},
    {.what = "empty and scalar",
     .hex =
         "a8000000000000007b2273223a7b226474797065223a22463634222c227368617065223a5b5d"
         "2c22646174615f6f666673657473223a5b302c385d7d2c2265223a7b226474797065223a2246"
         "3136222c227368617065223a5b305d2c22646174615f6f666673657473223a5b382c385d7d2c"
         "227a223a7b226474797065223a225538222c227368617065223a5b322c302c335d2c22646174"
         "615f6f666673657473223a5b382c385d7d7d202020202020",
     .n_tensors = 3,
     .tensors = {
         {.name = "s", .shape = NULL, .begin = 0, .end = 8, .ndim = 0, .dtype = FP8Q_F64},
         {.name = "e", .shape = (const uint64_t[]){0}, .begin = 8, .end = 8, .ndim = 1, .dtype = FP8Q_F16},
         {.name = "z", .shape = (const uint64_t[]){2, 0, 3}, .begin = 8, .end = 8, .ndim = 3, .dtype = FP8Q_U8},
     }},
    {.what = "escapes in names and metadata",
     .hex =
         "80000000000000007b225f5f6d657461646174615f5f223a7b226b5c6e223a22765c225c7530"
         "303032e282ac227d2c22615c225c5c2f5c625c665c6e5c725c745c75303030315c7530303166"
         "7fc3a9f09f9880223a7b226474797065223a225538222c227368617065223a5b315d2c226461"
         "74615f6f666673657473223a5b302c315d7d7d202020",
     .n_tensors = 1,
     .tensors = {
         {.name = "a\042\134/\010\014\012\015\011\001\037\177\303\251\360\237\230\200", .shape = (const uint64_t[]){1}, .begin = 0, .end = 1, .ndim = 1, .dtype = FP8Q_U8},
     },
     .metadata = {"k\012", "v\042\002\342\202\254", 2, 6}},
    {.what = "all of one size by name",
     .hex =
         "48010000000000007b2241223a7b226474797065223a224938222c227368617065223a5b315d"
         "2c22646174615f6f666673657473223a5b302c315d7d2c22612e62223a7b226474797065223a"
         "224938222c227368617065223a5b315d2c22646174615f6f666673657473223a5b312c325d7d"
         "2c22612f62223a7b226474797065223a224938222c227368617065223a5b315d2c2264617461"
         "5f6f666673657473223a5b322c335d7d2c22613130223a7b226474797065223a224938222c22"
         "7368617065223a5b315d2c22646174615f6f666673657473223a5b332c345d7d2c226139223a"
         "7b226474797065223a224938222c227368617065223a5b315d2c22646174615f6f6666736574"
         "73223a5b342c355d7d2c22c3a9223a7b226474797065223a224938222c227368617065223a5b"
         "315d2c22646174615f6f666673657473223a5b352c365d7d7d20202020202020",
     .n_tensors = 6,
     .tensors = {
         {.name = "A", .shape = (const uint64_t[]){1}, .begin = 0, .end = 1, .ndim = 1, .dtype = FP8Q_I8},
         {.name = "a.b", .shape = (const uint64_t[]){1}, .begin = 1, .end = 2, .ndim = 1, .dtype = FP8Q_I8},
         {.name = "a/b", .shape = (const uint64_t[]){1}, .begin = 2, .end = 3, .ndim = 1, .dtype = FP8Q_I8},
         {.name = "a10", .shape = (const uint64_t[]){1}, .begin = 3, .end = 4, .ndim = 1, .dtype = FP8Q_I8},
         {.name = "a9", .shape = (const uint64_t[]){1}, .begin = 4, .end = 5, .ndim = 1, .dtype = FP8Q_I8},
         {.name = "\303\251", .shape = (const uint64_t[]){1}, .begin = 5, .end = 6, .ndim = 1, .dtype = FP8Q_I8},
     }},
};
