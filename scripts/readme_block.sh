#!/usr/bin/env bash
# Prints the Nth fenced block of README.md, or of another page, so that what the page says is what is run.
set -euo pipefail
awk -v wanted="$1" '/^```/ { if (open) { open = 0 } else { open = 1; block++ } next } open && block == wanted' "${2:-$(dirname "$0")/../README.md}"
