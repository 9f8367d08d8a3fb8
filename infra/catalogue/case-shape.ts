import type { Case } from "#lib/recording/recording.ts";
import { flag, map, mapOfTexts, number, oneOf, type Shape, text, texts } from "../cli/shape.ts";

export const caseMembers: Record<keyof Case, Shape> = {
  name: text,
  mutate: map,
  validate: map,
  oldObject: map,
  operation: oneOf("CREATE, UPDATE, DELETE or CONNECT", "CREATE", "UPDATE", "DELETE", "CONNECT"),
  request: map,
  resource: text,
  namespace: text,
  user: map,
  dryRun: flag,
  variant: text,
  settings: map,
  needs: map,
  now: {
    expected: "a time, for instance 2026-01-01T00:00:00Z",
    isFit: (value) => typeof value === "string" && !Number.isNaN(Date.parse(value)),
  },
  becomes: map,
  admitted: oneOf("true", true),
  refused: text,
  fails: text,
  code: number,
  reason: { expected: "a text or null", isFit: (value) => value === null || typeof value === "string" },
  details: map,
  warnings: texts,
  audit: mapOfTexts,
  recorded: map,
};
