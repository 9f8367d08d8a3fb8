import type { Mistake } from "#lib/settings.ts";

export type Path = (string | number)[];
export type Fields = Record<string, unknown>;

export interface Checker {
  found: Mistake[];
  complain(path: Path, sentence: string): void;
  complainOnce(path: Path, sentence: string): void;
  /** Complains of keys other than these. Returns an empty map if the value is missing or is no map. */
  map(value: unknown, path: Path, keys?: readonly string[]): Fields;
  texts(value: unknown, path: Path): string[] | undefined;
}

export const openChecker = (): Checker => {
  const found: Mistake[] = [];
  const complain = (path: Path, sentence: string) => void found.push({ path, sentence });
  return {
    found,
    complain,
    complainOnce: (path, sentence) => {
      const isKnown = found.some((one) => one.sentence === sentence && one.path.join() === path.join());
      if (!isKnown) complain(path, sentence);
    },
    map: (value, path, keys) => {
      if (value === null || value === undefined) return {};
      if (typeof value !== "object" || Array.isArray(value)) {
        complain(path, "must be a map");
        return {};
      }
      for (const key of Object.keys(value))
        if (keys && !keys.includes(key)) complain([...path, key], `is unknown; one of ${keys.join(", ")} is expected`);
      return value as Fields;
    },
    texts: (value, path) => {
      if (value === undefined) return undefined;
      if (Array.isArray(value) && value.every((one) => typeof one === "string")) return value;
      complain(path, "must be a list of texts");
      return undefined;
    },
  };
};
