import { isDeepStrictEqual } from "node:util";
import { type EndpointConfig, findClusterSetup } from "#lib/core/endpoint.ts";
import { isMap } from "#lib/json.ts";

/** Returns a line for each changed setting, with the clusters concerned, such as `prod.settings.minimum: 2 → 3`. */
export const compareSetups = (before: EndpointConfig, after: EndpointConfig, clusters: readonly string[]): string[] => {
  const names = [...new Set([...Object.keys(before.clusters), ...Object.keys(after.clusters), ...clusters])];
  const compared = new Map<unknown, Map<unknown, string[]>>();
  // Many clusters have the same setups. Each pair of setups is compared only once.
  const compareOnce = (name: string): string[] => {
    const [old, fresh] = [findClusterSetup(before, name), findClusterSetup(after, name)];
    const linesOfOld = compared.get(old) ?? new Map<unknown, string[]>();
    const lines = linesOfOld.get(fresh) ?? compareSettings(old, fresh);
    compared.set(old, linesOfOld.set(fresh, lines));
    return lines;
  };
  const placesByLine = Map.groupBy(
    names.flatMap((name) => compareOnce(name).map((line) => ({ name, line }))),
    ({ line }) => line,
  );
  const logs = compareSettings({ logs: before.logs }, { logs: after.logs });
  const settings = [...placesByLine].map(([line, places]) => {
    const shown = shortenList(places.map(({ name }) => name));
    // A line that begins with a colon has no path: it is about the cluster as a whole.
    return `${shown}${line.startsWith(":") ? "" : "."}${line}`;
  });
  return [...logs, ...settings];
};

/** Returns at most three names as text, or the first two and a number: "a, b, 3 others". */
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
