import { readRows } from "../../rows.ts";

/** The YAML file beside this one: values for random webhook configurations, and for the answers of their webhooks. */
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
