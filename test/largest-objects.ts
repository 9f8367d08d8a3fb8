import { isMap, isObject } from "#lib/json.ts";
import { replaceAt } from "../infra/testing/wrong-types.ts";

type Path = (string | number)[];

/** The bytes of the largest object that etcd stores with its default limit of requests. */
const largestBytes = 1.5 * 1024 * 1024;

/** An object as large as etcd can store, because the list or map at `path` has many elements. */
export interface LargestObject {
  path: Path;
  /**
   * The part in which the elements differ from each other: "nothing", "the text" if they are texts, the path of a text
   * (such as "metadata.name"), or "a key of PATH" if each element's map at this path has another key.
   */
  differingPart: string;
  build(): object;
}

/** Returns copies of an object that are as large as etcd can store: in each, one list or map has many elements. */
export const listLargestObjects = (object: object): LargestObject[] =>
  listMapsAndLists(object, []).flatMap(([path, mapOrList]) => {
    const isList = Array.isArray(mapOrList);
    const [first] = Object.values(mapOrList);
    // Only a map of texts can have many keys: the keys of other maps are the fields of their types.
    if (first === undefined || (!isList && !Object.values(mapOrList).every((value) => typeof value === "string")))
      return [];
    const fill = (change: (index: number) => unknown) => () => {
      const room = largestBytes - Buffer.byteLength(JSON.stringify(object));
      // In JSON, a comma follows an element of a list; a member of a map also has a key.
      const otherBytes = (isList ? "," : '"key100000":,').length;
      const elementBytes = Buffer.byteLength(JSON.stringify(change(100_000))) + otherBytes;
      const count = Math.floor(room / elementBytes);
      const elements = Array.from({ length: count }, (_, index) => change(index));
      const filled = isList ? elements : Object.fromEntries(elements.map((value, index) => [`key${index}`, value]));
      return replaceAt(object, path, filled) as object;
    };
    const texts = listTexts(first, []);
    return [
      { path, differingPart: "nothing", build: fill(() => first) },
      ...texts.map((place) => ({
        path,
        differingPart: place.join(".") || "the text",
        build: fill((index) => replaceAt(first, place, `${readAt(first, place)}${index}`)),
      })),
      ...listTextMaps(first, []).map(([place, [key, text]]) => ({
        path,
        differingPart: `a key of ${place.join(".")}`,
        build: fill((index) => replaceAt(first, place, { [`${key}${index}`]: text })),
      })),
    ];
  });

const listMapsAndLists = (value: object, path: Path): [Path, object][] => [
  [path, value],
  ...Object.entries(value).flatMap(([key, inner]) =>
    isObject(inner) ? listMapsAndLists(inner, [...path, Array.isArray(value) ? Number(key) : key]) : [],
  ),
];

const listTexts = (value: unknown, path: Path): Path[] => {
  if (typeof value === "string") return [path];
  return isMap(value) ? Object.entries(value).flatMap(([key, inner]) => listTexts(inner, [...path, key])) : [];
};

/** Lists the maps of texts inside a value, each by its path and with its first key and text. */
const listTextMaps = (value: unknown, path: Path): [Path, [string, unknown]][] => {
  if (!isMap(value)) return [];
  const [first] = Object.entries(value);
  const isTextMap = path.length > 0 && first && Object.values(value).every((text) => typeof text === "string");
  if (isTextMap) return [[path, first]];
  return Object.entries(value).flatMap(([key, inner]) => listTextMaps(inner, [...path, key]));
};

const readAt = (value: unknown, path: Path): unknown =>
  path.reduce<unknown>((inner, key) => Reflect.get(Object(inner), key), value);
