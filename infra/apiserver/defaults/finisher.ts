import type { Json } from "#lib/json.ts";

/** Beside what was read a finisher gets what was given, where nothing and an empty list differ. */
export type Finisher = (fields: Json, given: Json) => void;

export type Finishers = Readonly<Record<string, Finisher | undefined>>;

/** Returns a member; what isn't there is empty, and not put there. */
export const partOf = (fields: Json, member: string): Json => (fields[member] ?? {}) as Json;
export const listIn = (fields: Json, member: string): Json[] => (fields[member] ?? []) as Json[];
