import { readRows } from "../../rows.ts";

/** The values that random webhook configurations and their hooks are made of. */
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
