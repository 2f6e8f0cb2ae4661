#!/usr/bin/env bash
# Prints the Nth fenced command block of README.md, so that what the README says is what is run.
set -euo pipefail
awk -v wanted="$1" '/^```/ { if (open) { open = 0 } else { open = 1; block++ } next } open && block == wanted' "$(dirname "$0")/../README.md"
