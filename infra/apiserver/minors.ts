import { isMap, type JsonMap } from "#lib/json.ts";
import { parseMinor } from "#lib/since.ts";

/**
 * Returns data of the newest minor as it is in another one. `older` has what each older minor has differently from the
 * next one, newest first, as JSON merge patches (RFC 7386): null means that a member is not there.
 */
export const selectMinor = <T>(newest: T, older: Readonly<Record<string, object>>, kubernetes?: string): T => {
  if (kubernetes === undefined) return newest;
  const patches = Object.entries(older).filter(([minor]) => parseMinor(minor) >= parseMinor(kubernetes));
  // Patches keep the shape of the data.
  return patches.reduce<unknown>((data, [, patch]) => applyMergePatch(data, patch), newest) as T;
};

const applyMergePatch = (data: unknown, patch: unknown): unknown => {
  if (!isMap(patch)) return patch;
  const changed: JsonMap = isMap(data) ? { ...data } : {};
  for (const [key, value] of Object.entries(patch))
    if (value === null) delete changed[key];
    else changed[key] = applyMergePatch(changed[key], value);
  return changed;
};
