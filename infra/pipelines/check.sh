#!/usr/bin/env bash
# What the pipelines run on manifests, in the checkout that holds them: the Pods that workloads would make are judged, too,
# unless --no-pod-templates is given. It takes what `postern check` takes besides paths, and these variables:
#
#   MANIFESTS  a file, a folder, a glob, or - for what is piped in; if empty, k8s, where there is such a folder
#   CLUSTER    whose rules, where postern.yaml has several clusters
#   STRICT     if not empty, what can't be said is a failure as well
#
# It leaves check.txt, check.json, check.sarif and, for JUnit, check.xml in postern-check/. The exit code is 0 where all is
# admitted, 1 where something is denied or can't be read, 2 where the call is wrong, and 3 where, at worst, something can't
# be said without the cluster: that is nobody's mistake, so pipelines show it and go on.
set -uo pipefail

postern="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
folder=postern-check

if [ -z "${MANIFESTS:-}" ] && [ ! -d k8s ]; then
  echo "There is no folder k8s, so nothing is checked; the variable MANIFESTS names another."
  exit 0
fi

mkdir -p "$folder"
# A pipeline's folder may be that of the run before.
rm -f "$folder"/check.*
status=0
# Not by npx, which runs in the folder of whoever it belongs to: paths in reports are those of this checkout.
node "$postern/infra/postern.js" check "${MANIFESTS:-k8s}" --config "$postern/postern.yaml" \
  ${CLUSTER:+--cluster "$CLUSTER"} "$@" -o text -o json="$folder/check.json" -o sarif="$folder/check.sarif" \
  -o junit="$folder/check.xml" -o github="$folder/check.github" >"$folder/check.txt" 2>&1 || status=$?

if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  # Manifests are anybody's: a line of theirs must not become a command to GitHub's runner.
  token="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
  echo "::stop-commands::$token"
  cat "$folder/check.txt"
  echo "::$token::"
  if [ -f "$folder/check.github" ]; then cat "$folder/check.github"; fi
  # What is indented holds no Markdown, and of more than a megabyte GitHub would show nothing.
  {
    printf '### What the rules would do%s\n\n' "${CLUSTER:+ in $CLUSTER}"
    head -c 500000 "$folder/check.txt" | sed 's/^/    /'
    printf '\n'
  } >>"$GITHUB_STEP_SUMMARY"
else
  cat "$folder/check.txt"
fi

if [ "$status" -eq 3 ]; then
  count='JSON.parse(require("node:fs").readFileSync(process.argv[1], "utf8")).summary.faults'
  # Without a report, the check itself has failed.
  unread="$(node -p "$count" "$folder/check.json" 2>/dev/null)" || unread=all
  if [ "$unread" != 0 ] || [ -n "${STRICT:-}" ]; then status=1; fi
fi
exit "$status"
