/* SPDX-License-Identifier: Apache-2.0
 *
 * role.h - what a tensor is by its name: the reasons to keep one.
 */
#ifndef FP8Q_ROLE_H
#define FP8Q_ROLE_H

#include "select/families.h"
#include "select/reason.h"

/* The reason to keep a tensor of this name, or false if its name gives none.  *@tower_out: under a
 * vision or audio root.  @family's roots come first: what lies in a tower has the tower's reason
 * whatever it is.  */
bool fp8q_role(const struct fp8q_family *family, const char *name, uint32_t ndim,
               enum fp8q_reason *reason_out, bool *tower_out);

/* Roots of the family that occur in @name, or a component that says tower: the dotted prefix up to
 * and with the root ("model.visual").  Length, or 0.  */
size_t fp8q_root_prefix(const struct fp8q_family *family, const char *name);

#endif
