import { isDeepStrictEqual } from "node:util";
import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import { isMap } from "#lib/json.ts";

/** Returns a line for each changed setting and the clusters where it changes, such as `a.settings.minimum: 2 → 3`. */
export const compareSetups = (before: EndpointConfig, after: EndpointConfig, clusters: readonly string[]): string[] => {
  const names = [...new Set([...Object.keys(before.clusters), ...Object.keys(after.clusters), ...clusters])];
  const compared = new Map<unknown, Map<unknown, string[]>>();
  // Many clusters have the same setups, which are compared once.
  const compareOnce = (name: string): string[] => {
    const [old, fresh] = [findClusterSetup(before, name), findClusterSetup(after, name)];
    const known = compared.get(old) ?? new Map<unknown, string[]>();
    const lines = known.get(fresh) ?? compareSettings(old, fresh);
    compared.set(old, known.set(fresh, lines));
    return lines;
  };
  const where = Map.groupBy(
    names.flatMap((name) => compareOnce(name).map((line) => ({ name, line }))),
    ({ line }) => line,
  );
  const logs = compareSettings({ logs: before.logs }, { logs: after.logs });
  const settings = [...where].map(([line, places]) => {
    const shown = shortenList(places.map(({ name }) => name));
    // A line without a path is about a cluster as a whole.
    return `${shown}${line.startsWith(":") ? "" : "."}${line}`;
  });
  return [...logs, ...settings];
};

/** Returns names as text: all of them up to three, otherwise the first two and the number of the others. */
export const shortenList = (names: readonly string[]): string =>
  (names.length > 3 ? [...names.slice(0, 2), `${names.length - 2} others`] : names).join(", ");

/** Returns a line for each changed setting, such as `settings.minimum: 2 → 3`. */
const compareSettings = (before: unknown, after: unknown, path: string[] = []): string[] => {
  if (isDeepStrictEqual(before, after)) return [];
  if (isMap(before) && isMap(after))
    return [...new Set([...Object.keys(before), ...Object.keys(after)])].flatMap((key) =>
      compareSettings(Reflect.get(before, key), Reflect.get(after, key), [...path, key]),
    );
  return [`${path.join(".")}: ${formatSetting(before)} → ${formatSetting(after)}`];
};

const formatSetting = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
};
