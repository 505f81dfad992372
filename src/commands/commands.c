/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.c - every command, in the order of help.
 */
#include "commands/commands.h"

const struct cli_command cli_commands[] = {
    {"quantize", cmd_quantize, "convert a checkpoint to block-FP8"},
    {"finish", cmd_finish, "end a conversion whose parts ran separately"},
    {"verify", cmd_verify, "prove a checkpoint, alone or against its source"},
    {"inspect", cmd_inspect, "show what a file or directory holds"},
    {"dequantize", cmd_dequantize, "convert an FP8 checkpoint back to high precision"},
    {"families", cmd_families, "print the tables of architectures"},
    {"compare", cmd_compare, "error and size of FP8, INT8 and INT4 on the weights of a checkpoint"},
    {"calibrate", cmd_calibrate, "statistics of the inputs of linears"},
    {"eval", cmd_eval, "how far the outputs of two checkpoints differ"},
    {"drift", cmd_drift, "whether the distribution of inputs has moved"},
    {"sweep", cmd_sweep, "what each module costs; splits by budget"},
    {"gate", cmd_gate, "one decision from verify, evidence of eval, and task results"},
    {"bench", cmd_bench, "measure this machine and a conversion on it"},
    {NULL, NULL, NULL},
};
