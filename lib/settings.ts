import { freezeDeep, isMap } from "./json.ts";
import { quoteValue } from "./policy/values/texts.ts";

// A rule's default settings define which settings are allowed: a setting without a default is unknown, and a value must
// have the type of its default. If a default is an empty map or list, it accepts any members, unless the rule's
// `elements` has an example of a member.

/** A wrong setting: its path, such as `limits.cpu`, and a sentence without subject, such as `must be a text, not 1`. */
export interface SettingsMistake {
  path: (string | number)[];
  sentence: string;
}

/** Overrides defaults member by member; lists are replaced whole. */
export const mergeWithDefaults = (defaults: object, settings: unknown): object => {
  if (!isMap(settings)) return defaults;
  const overridden = Object.entries(settings).map(([key, value]) => {
    const defaultValue: unknown = Object.hasOwn(defaults, key) ? Reflect.get(defaults, key) : undefined;
    return [key, isMap(defaultValue) && isMap(value) ? mergeWithDefaults(defaultValue, value) : value];
  });
  // fromEntries treats __proto__ as a key like any other; an assignment would not.
  return { ...defaults, ...Object.fromEntries(overridden) };
};

/** Fields of kube-apiserver's configuration files. Settings may contain them, but they have no effect. */
export const typeMetaKeys = ["apiVersion", "kind"];

/** The values that a setting may have, by its path, such as `defaults.enforce`. A list's path means its elements. */
export type SettingChoices = Readonly<Record<string, readonly string[]>>;

/**
 * By the path of a list, or of a map with any keys: an example, whose type each element or value must have. It is for
 * an empty default, which shows no type. In a path, `*` stands for each element, as in `quotas.*.labels`.
 */
export type SettingElements = Readonly<Record<string, unknown>>;

/** The fields of a rule that describe its settings. */
interface SettingsShape {
  settings?: object;
  choices?: SettingChoices;
  elements?: SettingElements;
}

/** Compares settings with the defaults of a rule, with its examples of elements, and with its choices. */
export const findSettingsMistakes = (
  { settings: defaults = {}, choices = {}, elements = {} }: SettingsShape,
  settings: unknown,
): SettingsMistake[] => {
  const mistakes = compareMaps(defaults, settings, [], "", elements);
  if (mistakes.length > 0) return mistakes;
  return Object.entries(choices).flatMap(([place, allowedTexts]) =>
    listValues(settings, place.split("."), []).flatMap(({ path, value }) => {
      const sentence = `must be one of ${allowedTexts.map((text) => text || '""').join(", ")}, not ${JSON.stringify(value)}`;
      return allowedTexts.some((text) => text === value) ? [] : [{ path, sentence }];
    }),
  );
};

/**
 * Returns the values that the remaining keys of a path lead to from `value`, and their whole paths. Where the path
 * leads to a list, it continues in each element. `pathSoFar` is the path of `value`.
 */
const listValues = (
  value: unknown,
  [key, ...remainingKeys]: readonly string[],
  pathSoFar: (string | number)[],
): { path: (string | number)[]; value: unknown }[] => {
  if (Array.isArray(value))
    return value.flatMap((element, index) => {
      const elementPath = [...pathSoFar, index];
      if (key !== undefined) return isMap(element) ? listValues(element, [key, ...remainingKeys], elementPath) : [];
      return [{ path: elementPath, value: element }];
    });
  if (key === undefined) return [{ path: pathSoFar, value }];
  return isMap(value) && Object.hasOwn(value, key) ? listValues(value[key], remainingKeys, [...pathSoFar, key]) : [];
};

/** Compares a map with a map of defaults. `place` is the path with `*` for each element, as in `SettingElements`. */
const compareMaps = (
  defaults: object,
  settings: unknown,
  path: (string | number)[],
  place: string,
  elements: SettingElements,
): SettingsMistake[] => {
  if (!isMap(settings)) return [{ path, sentence: `must be a map, not ${describeValue(settings)}` }];
  // A map with any keys: `elements` has an example, and each value of the map is compared with it.
  if (Object.hasOwn(elements, place))
    return Object.entries(settings).flatMap(([key, value]) =>
      compareValues(elements[place], value, [...path, key], `${place}.*`, elements),
    );
  const knownKeys = Object.keys(defaults);
  return Object.entries(settings).flatMap(([key, value]) => {
    const valuePath = [...path, key];
    if (path.length === 0 && typeMetaKeys.includes(key)) return [];
    if (!Object.hasOwn(defaults, key))
      return [
        {
          path: valuePath,
          sentence: `is unknown; ${knownKeys.length > 0 ? `one of ${knownKeys.join(", ")} is expected` : "there are no settings here"}`,
        },
      ];
    return compareValues(
      Reflect.get(defaults, key),
      value,
      valuePath,
      place === "" ? key : `${place}.${key}`,
      elements,
    );
  });
};

/** Returns how a value differs in type from the default (`example`). `place` is the path with `*` for each index. */
const compareValues = (
  example: unknown,
  value: unknown,
  path: (string | number)[],
  place: string,
  elements: SettingElements,
): SettingsMistake[] => {
  if (example === null || example === undefined) return [];
  if (typeof example !== typeof value || value === null || Array.isArray(example) !== Array.isArray(value))
    return [{ path, sentence: `must be ${describeType(example)}, not ${describeValue(value)}` }];
  if (typeof value === "number" && Number.isInteger(example) && !Number.isSafeInteger(value))
    return [{ path, sentence: `must be a whole number, not ${value}` }];
  if (Array.isArray(example) && Array.isArray(value)) {
    const element: unknown = Object.hasOwn(elements, place) ? elements[place] : example[0];
    return value.flatMap((item, index) => compareValues(element, item, [...path, index], `${place}.*`, elements));
  }
  // The default `{}` accepts any map, unless `elements` has an example of a value in that map.
  const isCompared = isMap(example) && (Object.keys(example).length > 0 || Object.hasOwn(elements, place));
  return isCompared ? compareMaps(example, value, path, place, elements) : [];
};

const describeType = (example: unknown): string => {
  if (typeof example === "object") return describeValue(example);
  return typeof example === "string" ? "a text" : typeof example === "number" ? "a number" : "true or false";
};

const describeValue = (value: unknown): string => (isMap(value) ? "a map" : quoteValue(value));

/** The settings that a rule's variant changes, by the name of the variant. */
export type SettingsVariants = Record<string, object>;

/**
 * Returns the settings of a variant: `settings` with the members that the variant changes; undefined if there is no
 * such variant. If the cluster has variants, they replace the rule's. Results are cached, because freezing large
 * settings takes time.
 */
export const findVariantSettings = (
  { variants: ruleVariants = {} }: { variants?: SettingsVariants },
  cluster: { variants?: SettingsVariants } | undefined,
  name: string | undefined,
  settings: object,
): object | undefined => {
  const variants = cluster?.variants ?? ruleVariants;
  const overrides = name !== undefined && Object.hasOwn(variants, name) ? variants[name] : undefined;
  if (overrides === undefined) return undefined;
  const cache = variantSettings.get(settings) ?? new WeakMap<object, object>();
  variantSettings.set(settings, cache);
  const merged = cache.get(overrides) ?? freezeDeep(mergeWithDefaults(settings, overrides));
  cache.set(overrides, merged);
  return merged;
};

/** A cache of merged settings: by the cluster's settings, and then by the members that the variant changes. */
const variantSettings = new WeakMap<object, WeakMap<object, object>>();
