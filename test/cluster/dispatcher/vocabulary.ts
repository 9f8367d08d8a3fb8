import { readRows } from "../../rows.ts";

/** The values from which random webhook configurations, and the answers of their webhooks, are chosen. */
export const vocabulary = readRows<{
  resources: string[][];
  groups: string[][];
  versions: string[][];
  operations: string[][];
  selectors: object[];
  conditions: string[];
  denials: object[];
  faultyAnswers: { code?: number; type?: string; body: string }[];
  oddPatches: { annotation?: Record<string, string>; patch: object[] }[];
}>(import.meta.filename);
