import { freezeDeep, isMap } from "./json.ts";
import { quoteValue } from "./policy/values/texts.ts";

// The defaults of a rule define the shape of its settings: a member that they lack is unknown, a value of another type
// is wrong. An empty map or list takes any members, unless the rule has an example of them.

/** A wrong member of settings: its path, and a sentence that continues the path. */
export interface SettingsMistake {
  path: (string | number)[];
  sentence: string;
}

/** Overrides defaults member by member; lists are replaced whole. */
export const mergeWithDefaults = (defaults: object, settings: unknown): object => {
  if (!isMap(settings)) return defaults;
  const overridden = Object.entries(settings).map(([key, value]) => {
    const before: unknown = Object.hasOwn(defaults, key) ? Reflect.get(defaults, key) : undefined;
    return [key, isMap(before) && isMap(value) ? mergeWithDefaults(before, value) : value];
  });
  // fromEntries treats __proto__ as a key like any other; an assignment would not.
  return { ...defaults, ...Object.fromEntries(overridden) };
};

/** Fields of kube-apiserver's configuration files that settings may contain, but that mean nothing here. */
export const settingsHeader = ["apiVersion", "kind"];

/** The values that settings may have, by their path, such as `defaults.enforce`. A list's elements have its path. */
export type SettingChoices = Readonly<Record<string, readonly string[]>>;

/**
 * Examples of the elements of lists, and of the values of maps that take any key, by the path of the list or map. A `*`
 * stands for an element, as in `quotas.*.labels`.
 */
export type SettingElements = Readonly<Record<string, unknown>>;

/** What a rule says of its settings. */
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
  return Object.entries(choices).flatMap(([place, words]) =>
    listValues(settings, place.split("."), []).flatMap(({ path, value }) => {
      const sentence = `must be one of ${words.map((word) => word || '""').join(", ")}, not ${JSON.stringify(value)}`;
      return words.some((word) => word === value) ? [] : [{ path, sentence }];
    }),
  );
};

/** Returns the values at a path, through the elements of lists. */
const listValues = (
  value: unknown,
  [key, ...rest]: readonly string[],
  path: (string | number)[],
): { path: (string | number)[]; value: unknown }[] => {
  if (Array.isArray(value))
    return value.flatMap((element, index) => {
      const at = [...path, index];
      if (key !== undefined) return isMap(element) ? listValues(element, [key, ...rest], at) : [];
      return [{ path: at, value: element }];
    });
  if (key === undefined) return [{ path, value }];
  return isMap(value) && Object.hasOwn(value, key) ? listValues(value[key], rest, [...path, key]) : [];
};

/** `place` is the path with `*` for each element. */
const compareMaps = (
  defaults: object,
  settings: unknown,
  path: (string | number)[],
  place: string,
  elements: SettingElements,
): SettingsMistake[] => {
  if (!isMap(settings)) return [{ path, sentence: `must be a map, not ${describeValue(settings)}` }];
  if (Object.hasOwn(elements, place))
    return Object.entries(settings).flatMap(([key, value]) =>
      compareValues(elements[place], value, [...path, key], `${place}.*`, elements),
    );
  const known = Object.keys(defaults);
  return Object.entries(settings).flatMap(([key, value]) => {
    const at = [...path, key];
    if (path.length === 0 && settingsHeader.includes(key)) return [];
    if (!Object.hasOwn(defaults, key))
      return [
        {
          path: at,
          sentence: `is unknown; ${known.length > 0 ? `one of ${known.join(", ")} is expected` : "there are no settings here"}`,
        },
      ];
    return compareValues(Reflect.get(defaults, key), value, at, place === "" ? key : `${place}.${key}`, elements);
  });
};

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
  const isCompared = isMap(example) && (Object.keys(example).length > 0 || Object.hasOwn(elements, place));
  return isCompared ? compareMaps(example, value, path, place, elements) : [];
};

const describeType = (example: unknown): string => {
  if (typeof example === "object") return describeValue(example);
  return typeof example === "string" ? "a text" : typeof example === "number" ? "a number" : "true or false";
};

const describeValue = (value: unknown): string => (isMap(value) ? "a map" : quoteValue(value));

/** The settings that differ in each of a rule's variants, by name. */
export type SettingsVariants = Record<string, object>;

/**
 * Returns the settings of a variant: those of the cluster with what the variant changes. The cluster's variants, if any,
 * replace the rule's. They are the same object in each review, because freezing large settings takes time.
 */
export const findVariantSettings = (
  { variants: usual = {} }: { variants?: SettingsVariants },
  cluster: { variants?: SettingsVariants } | undefined,
  name: string | undefined,
  settings: object,
): object | undefined => {
  const variants = cluster?.variants ?? usual;
  const overrides = name !== undefined && Object.hasOwn(variants, name) ? variants[name] : undefined;
  if (overrides === undefined) return undefined;
  const known = variantSettings.get(settings) ?? new WeakMap<object, object>();
  variantSettings.set(settings, known);
  const found = known.get(overrides) ?? freezeDeep(mergeWithDefaults(settings, overrides));
  known.set(overrides, found);
  return found;
};

/** The settings of variants, by those of a cluster and by those of the variant that differ. */
const variantSettings = new WeakMap<object, WeakMap<object, object>>();
