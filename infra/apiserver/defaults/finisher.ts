import type { Json } from "#lib/json.ts";

/** Fills in decoded fields in place. `given` is the undecoded value, where an absent list and an empty one differ. */
export type Finisher = (fields: Json, given: Json) => void;

export type Finishers = Readonly<Record<string, Finisher | undefined>>;

/** Returns a member, or an empty object that isn't added to the fields. */
export const partOf = (fields: Json, member: string): Json => (fields[member] ?? {}) as Json;
export const listIn = (fields: Json, member: string): Json[] => (fields[member] ?? []) as Json[];
