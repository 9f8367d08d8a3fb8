import { isObject, toMap } from "#lib/json.ts";

type Path = (string | number)[];

/** A value that an evaluation read, or looked for, at `path`, and a value of another type for its place. */
export interface WrongType {
  path: Path;
  value: unknown;
}

const values: readonly unknown[] = [null, true, 0, 1.5, "x", [], {}, ["x"], { a: "b" }];

/** Returns a view of a value, and a function that lists each member read through it, with values of other types. */
export const watchReads = <T extends object>(root: T): { view: T; listWrongTypes(): WrongType[] } => {
  const read = new Map<string, Path>();
  const views = new WeakMap<object, object>();
  const buildView = (target: object, path: Path): object => {
    const known = views.get(target);
    if (known) return known;
    const isList = Array.isArray(target);
    /** Notes a read of a member, and returns a view of it. Methods, such as those of lists, are no members. */
    const note = (key: string | symbol, value: unknown) => {
      if (typeof key === "symbol" || (isList ? !/^\d+$/.test(key) : key in Object.prototype)) return value;
      const place = [...path, isList ? Number(key) : key];
      read.set(JSON.stringify(place), place);
      return isObject(value) ? buildView(value, place) : value;
    };
    // A proxy of a frozen object must return its members unchanged, so the target is an empty object.
    const view = new Proxy(isList ? [] : {}, {
      get: (_, key) => note(key, Reflect.get(target, key)),
      has: (_, key) => {
        note(key, undefined);
        return Reflect.has(target, key);
      },
      ownKeys: () => Reflect.ownKeys(target),
      getOwnPropertyDescriptor: (_, key) => {
        const found = Reflect.getOwnPropertyDescriptor(target, key);
        const isLength = isList && key === "length";
        return found && { ...found, value: note(key, found.value), writable: true, configurable: !isLength };
      },
    });
    views.set(target, view);
    return view;
  };
  const listWrongTypes = () => [...read.values()].flatMap((path) => values.map((value) => ({ path, value })));
  // The view has the members of the root.
  return { view: buildView(root, []) as T, listWrongTypes };
};

/** Returns a copy with another value at a path; a path to an absent member of a map adds it. */
export const replaceAt = (value: unknown, [key, ...rest]: Path, other: unknown): unknown => {
  if (key === undefined) return other;
  const changed = replaceAt(isObject(value) ? Reflect.get(value, key) : undefined, rest, other);
  return Array.isArray(value) ? value.with(Number(key), changed) : { ...toMap(value), [key]: changed };
};
