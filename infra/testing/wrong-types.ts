import { isObject, toMap } from "#lib/json.ts";

type Path = (string | number)[];

/** The path of a member that an evaluation read, even if it was missing, and a value of another type for the member. */
export interface WrongType {
  path: Path;
  value: unknown;
}

const values: readonly unknown[] = [null, true, 0, 1.5, "x", [], {}, ["x"], { a: "b" }];

/**
 * Returns a view of a value that remembers which members are read. `listWrongTypes` returns each read member with
 * values of several types.
 */
export const watchReads = <T extends object>(root: T): { view: T; listWrongTypes(): WrongType[] } => {
  const read = new Map<string, Path>();
  const views = new WeakMap<object, object>();
  const buildView = (target: object, path: Path): object => {
    const existingView = views.get(target);
    if (existingView) return existingView;
    const isList = Array.isArray(target);
    /** Remembers that a member is read, and returns a view of it. Methods, such as `map` of a list, are no members. */
    const rememberRead = (key: string | symbol, value: unknown) => {
      if (typeof key === "symbol" || (isList ? !/^\d+$/.test(key) : key in Object.prototype)) return value;
      const memberPath = [...path, isList ? Number(key) : key];
      read.set(JSON.stringify(memberPath), memberPath);
      return isObject(value) ? buildView(value, memberPath) : value;
    };
    // A proxy of a frozen object can't return views of its members, so the proxy's target is an empty object.
    const view = new Proxy(isList ? [] : {}, {
      get: (_, key) => rememberRead(key, Reflect.get(target, key)),
      has: (_, key) => {
        rememberRead(key, undefined);
        return Reflect.has(target, key);
      },
      ownKeys: () => Reflect.ownKeys(target),
      getOwnPropertyDescriptor: (_, key) => {
        const descriptor = Reflect.getOwnPropertyDescriptor(target, key);
        // A proxy must report a member as configurable if its target lacks it. The empty target lacks all members but
        // the `length` of a list, which isn't configurable.
        const isInTarget = isList && key === "length";
        return (
          descriptor && {
            ...descriptor,
            value: rememberRead(key, descriptor.value),
            writable: true,
            configurable: !isInTarget,
          }
        );
      },
    });
    views.set(target, view);
    return view;
  };
  const listWrongTypes = () => [...read.values()].flatMap((path) => values.map((value) => ({ path, value })));
  // The cast is safe: the view has the members of the root.
  return { view: buildView(root, []) as T, listWrongTypes };
};

/** Returns a copy with another value at a path. If a map doesn't have the member, adds it. */
export const replaceAt = (value: unknown, [key, ...rest]: Path, other: unknown): unknown => {
  if (key === undefined) return other;
  const changed = replaceAt(isObject(value) ? Reflect.get(value, key) : undefined, rest, other);
  return Array.isArray(value) ? value.with(Number(key), changed) : { ...toMap(value), [key]: changed };
};
