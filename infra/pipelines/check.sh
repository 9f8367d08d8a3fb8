#!/usr/bin/env bash
# Checks the manifests of a checkout, or a cluster, in a pipeline. It takes the options of `postern check`, and these variables:
#
#   MANIFESTS  a file, a folder, a glob, or - for standard input; the default is the folder k8s, if it exists
#   CLUSTER    the cluster with the rules to check, if postern.yaml has several
#   STRICT     if not empty, nothing is assumed of the cluster (--strict), and an undecided verdict is a failure, too
#   LIVE       if not empty, what the cluster has is checked instead (--live); a denial that the run before had is no failure
#
# It writes check.txt, check.json, check.sarif and, for JUnit, check.xml to postern-check/; with LIVE also check.reports.json,
# with PolicyReports, and known.sarif, which the pipeline must keep for the next run. The exit code is 0 if everything
# is allowed, 1 if an object is denied or a file can't be read, 2 if the options are wrong, and 3 if an object is undecided
# and none is denied: only the cluster could decide, so pipelines show it and continue.
set -uo pipefail

postern="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# The folder with postern.yaml: a checkout of Postern, or the project that has the package installed.
project="${postern%/node_modules/postern}"
folder=postern-check

if [ -z "${LIVE:-}${MANIFESTS:-}" ] && [ ! -d k8s ]; then
  echo "There is no folder k8s, so nothing is checked; the variable MANIFESTS names another."
  exit 0
fi

# A repository of manifests may bring a link of this name, which leads elsewhere.
if [ -L "$folder" ]; then rm "$folder"; fi
mkdir -p "$folder"
# Some pipelines keep the folder of an earlier run.
rm -f "$folder"/check.*
if [ -n "${LIVE:-}" ]; then
  title="What is new"
  what=(--live --known "$folder/known.sarif" -o policyreport="$folder/check.reports.json")
else
  title="What the rules would do"
  what=("${MANIFESTS:-k8s}" ${STRICT:+--strict})
fi
status=0
# Not by npx, which would run a program of this checkout's node_modules. --config keeps its postern.yaml from being used.
node "$postern/infra/postern.js" check "${what[@]}" --config "$project/postern.yaml" \
  ${CLUSTER:+--cluster "$CLUSTER"} "$@" -o text -o json="$folder/check.json" -o sarif="$folder/check.sarif" \
  -o junit="$folder/check.xml" -o github="$folder/check.github" >"$folder/check.txt" 2>&1 || status=$?

# How much could not be read; a check that failed has no report, or was cut.
unread=all
count='(({ summary, isCut }) => isCut ? "all" : summary.faults)(JSON.parse(require("node:fs").readFileSync(process.argv[1], "utf8")))'
if [ -f "$folder/check.json" ]; then unread="$(node -p "$count" "$folder/check.json" 2>/dev/null)" || unread=all; fi
# The next run compares with the last one that has read everything.
if [ -n "${LIVE:-}" ] && [ "$unread" = 0 ]; then cp "$folder/check.sarif" "$folder/known.sarif"; fi

if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  # Manifests are untrusted: none of their lines may become a command to GitHub's runner.
  token="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
  echo "::stop-commands::$token"
  cat "$folder/check.txt"
  echo "::$token::"
  if [ -f "$folder/check.github" ]; then cat "$folder/check.github"; fi
  # Indented text is not read as Markdown, and GitHub shows nothing of a summary above one megabyte.
  {
    printf '### %s%s\n\n' "$title" "${CLUSTER:+ in $CLUSTER}"
    head -c 500000 "$folder/check.txt" | sed 's/^/    /'
    printf '\n'
  } >>"$GITHUB_STEP_SUMMARY"
else
  cat "$folder/check.txt"
fi

if [ "$status" -eq 3 ]; then
  if [ "$unread" != 0 ] || [ -n "${STRICT:-}" ]; then status=1; fi
fi
exit "$status"
