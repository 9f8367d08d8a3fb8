/** Matches paths of a page that are no files of Postern: rules that readers of the page make, and placeholders. */
export const readersFiles =
  /^functions\/(?:require-owner-label|forbid-latest-tag|require-known-team|forbid-engine-change)\b|\/(?:RULE|VERB)\b/;
