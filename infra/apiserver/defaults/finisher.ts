import type { JsonMap } from "#lib/json.ts";

/** Fills in decoded fields in place. `given` is the undecoded value, where an absent list and an empty one differ. */
export type Finisher = (fields: JsonMap, given: JsonMap) => void;

export type Finishers = Readonly<Record<string, Finisher | undefined>>;

/** Returns a member, or an empty object that isn't added to the fields. */
export const partOf = (fields: JsonMap, member: string): JsonMap => (fields[member] ?? {}) as JsonMap;
export const listIn = (fields: JsonMap, member: string): JsonMap[] => (fields[member] ?? []) as JsonMap[];
