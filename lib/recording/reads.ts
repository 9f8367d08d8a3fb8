import { isObject } from "../json.ts";
import { originalOf } from "../patch.ts";

/** Notes which texts a rule reads by their names. What it reads because it goes through all members is not noted. */
export interface Reads {
  /** Returns a view of a value; what is read through it is noted. */
  watch<T>(value: T): T;
  /** Reports whether the text under this key was read by its name. */
  has(holder: object, key: string): boolean;
  /** Ends the notes: what reads the views from now on is not the rule. */
  close(): void;
}

/** Reads of nothing: every text counts as unread. */
export const noReads: Reads = { watch: (value) => value, has: () => false, close: () => {} };

export const openReads = (): Reads => {
  const read = new WeakMap<object, Set<string>>();
  const views = [new WeakMap<object, object>(), new WeakMap<object, object>()] as const;
  let isOpen = true;

  const note = (holder: object, key: string) => {
    if (!isOpen) return;
    const keys = read.get(holder);
    if (keys) keys.add(key);
    else read.set(holder, new Set([key]));
  };

  /** A list that was found by going through all members is not named, and neither are its elements. */
  const view = (of: object, isListed: boolean): object => {
    const known = views[isListed ? 1 : 0];
    const found = known.get(of);
    if (found) return found;
    /** The keys that were listed: reads of them may belong to that, however often and late they come. */
    const listed = new Set<PropertyKey>();
    const seen = (value: unknown, isPart: boolean) =>
      isObject(value) ? view(value, isPart && Array.isArray(value)) : value;
    // The invariants of a frozen target would forbid views inside it, so an empty one stands in for it.
    const made = new Proxy(Array.isArray(of) ? [] : {}, {
      get: (_, key) => {
        const value: unknown = Reflect.get(of, key);
        const isPart = listed.has(key) || isListed;
        if (typeof value === "string" && typeof key === "string" && !isPart) note(originalOf(of), key);
        return typeof key === "symbol" ? value : seen(value, isPart);
      },
      ownKeys: () => {
        const keys = Reflect.ownKeys(of);
        for (const key of keys) listed.add(key);
        return keys;
      },
      getOwnPropertyDescriptor: (_, key) => {
        const found = Reflect.getOwnPropertyDescriptor(of, key);
        const isLength = Array.isArray(of) && key === "length";
        return found && { ...found, value: seen(found.value, true), writable: true, configurable: !isLength };
      },
      has: (_, key) => Reflect.has(of, key),
      set: (_, key, value) => Reflect.set(of, key, value),
      defineProperty: (_, key, description) => Reflect.defineProperty(of, key, description),
      deleteProperty: (_, key) => Reflect.deleteProperty(of, key),
      preventExtensions: () => false,
    });
    known.set(of, made);
    return made;
  };

  return {
    // The view answers as the value does.
    watch: <T>(value: T): T => (isObject(value) ? (view(value, false) as T) : value),
    has: (holder, key) => read.get(holder)?.has(key) ?? false,
    close: () => {
      isOpen = false;
    },
  };
};
