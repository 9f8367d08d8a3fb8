import { isMap, type JsonMap } from "#lib/json.ts";
import { parseMinor } from "#lib/since.ts";

/**
 * Returns data about a minor version of Kubernetes, from the data of the newest one. `older` has a JSON merge patch
 * (RFC 7386) for each older minor, the newest first. A patch describes the differences from the next minor: null means
 * that a member is missing.
 */
export const selectMinor = <T>(newest: T, older: Readonly<Record<string, object>>, kubernetes?: string): T => {
  if (kubernetes === undefined) return newest;
  const patches = Object.entries(older).filter(([minor]) => parseMinor(minor) >= parseMinor(kubernetes));
  // Patches keep the shape of the data.
  return patches.reduce<unknown>((data, [, patch]) => applyMergePatch(data, patch), newest) as T;
};

/** Returns a JSON value changed by a JSON merge patch (RFC 7386): null deletes a member. */
const applyMergePatch = (original: unknown, patch: unknown): unknown => {
  if (!isMap(patch)) return patch;
  const changed: JsonMap = isMap(original) ? { ...original } : {};
  for (const [key, value] of Object.entries(patch))
    if (value === null) delete changed[key];
    else changed[key] = applyMergePatch(changed[key], value);
  return changed;
};
