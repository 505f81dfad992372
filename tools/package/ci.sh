#!/bin/sh
# The GitHub Action, the examples of examples/ci and the pre-commit hooks, run here with the wheel that was built.
# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "$0")/common.sh"
package_env
"$python" -B "$here/ci.py" "$top" "$dist" "$version"
