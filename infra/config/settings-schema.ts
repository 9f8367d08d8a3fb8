import { isMap } from "#lib/json.ts";
import type { Rule } from "#lib/rule.ts";
import { typeMetaKeys } from "#lib/settings.ts";

/** A JSON Schema, or a part of one. */
type Keywords = Record<string, unknown>;

/**
 * Returns the JSON Schema of a rule's settings, with descriptions and defaults. The schema comes from the rule's
 * default settings, its `choices` and its `elements`, which `findSettingsMistakes` checks, too.
 */
export const buildSettingsSchema = (
  {
    settings = {},
    choices = {},
    elements = {},
    manifests = {},
  }: Pick<Rule, "settings" | "choices" | "elements" | "manifests">,
  descriptions: ReadonlyMap<string, string>,
): Keywords => {
  // A path has `.*` for an element of a list or map, as the keys of `elements` have, too. The keys of `choices` and
  // `descriptions` leave it out.
  const describe = (example: unknown, path: string): Keywords => {
    const description = descriptions.get(withoutElements(path));
    return {
      ...(description && { description }),
      ...describeValue(example, path),
      ...(example != null && !hasMembers(example) && { default: example }),
    };
  };

  const describeValue = (example: unknown, path: string): Keywords => {
    const words = choices[withoutElements(path)];
    const hasElementExample = Object.hasOwn(elements, path);
    if (isMap(example) && hasElementExample)
      return { type: "object", additionalProperties: describeValue(elements[path], `${path}.*`) };
    if (hasMembers(example)) return describeMembers(example, path);
    if (Array.isArray(example)) {
      const element: unknown = hasElementExample ? elements[path] : example[0];
      return {
        type: "array",
        items: element === undefined ? describeUnknown(withoutElements(path)) : describeValue(element, `${path}.*`),
      };
    }
    if (typeof example === "object" || example === undefined)
      return describeUnknown(withoutElements(path), isMap(example));
    const type = typeof example === "number" && Number.isInteger(example) ? "integer" : typeof example;
    return { type, ...(words && { enum: words }) };
  };

  const describeMembers = (examples: object, path: string): Keywords => {
    const members = Object.entries(examples).map(([key, example]) => [key, describe(example, join(path, key))]);
    return { type: "object", properties: Object.fromEntries(members), additionalProperties: false };
  };

  /** Describes a value without an example in the defaults, such as an element of a list that is empty by default. */
  const describeUnknown = (path: string, isMapExpected = false): Keywords => {
    const words = choices[path];
    // Such a value may be one of the words or a list of them.
    if (words) return { anyOf: [{ enum: words }, { type: "array", items: { enum: words } }] };
    const names = Object.keys(choices).flatMap((place) =>
      place.startsWith(`${path}.`) ? [place.slice(path.length + 1).split(".")[0] ?? ""] : [],
    );
    const members = names.map((name) => [name, describeUnknown(join(path, name))]);
    return {
      ...(isMapExpected && { type: "object" }),
      ...(members.length > 0 && { properties: Object.fromEntries(members) }),
    };
  };

  const schema = describeMembers(settings, "");
  const properties = schema.properties as Record<string, Keywords>;
  // Settings may be a copy of the plugin's configuration file, which has apiVersion and kind.
  for (const key of typeMetaKeys) properties[key] ??= {};
  // A setting with objects may name one file or folder of manifests.
  for (const key of Object.keys(manifests)) properties[key] = { ...properties[key], type: ["array", "string"] };
  return { ...schema, type: ["object", "null"] };
};

const hasMembers = (value: unknown): value is object => isMap(value) && Object.keys(value).length > 0;

/** Returns a path without `.*`, for instance `rules.verbs` for `rules.*.verbs`. Choices have such paths. */
const withoutElements = (path: string) => path.replaceAll(".*", "");

const join = (path: string, key: string) => (path === "" ? key : `${path}.${key}`);
