import { getOriginalOfDraft } from "../core/patch.ts";
import { isObject } from "../json.ts";

/** Notes which texts a rule reads by key, as in `labels.app`. Reads by a loop over all members are not noted. */
export interface FieldReadTracker {
  /** Returns a view of a value. Reads of the view are noted. */
  watch<T>(value: T): T;
  /** Reports whether a text was read. */
  has(holder: object, key: string): boolean;
  /** Stops noting. Must be called after the rule has returned, because other code reads the views, too. */
  close(): void;
}

/** A tracker that notes no reads. */
export const inactiveFieldReadTracker: FieldReadTracker = {
  watch: (value) => value,
  has: () => false,
  close: () => {},
};

/** Notes which texts a rule reads from an object, because a recording must keep those. */
export const createFieldReadTracker = (): FieldReadTracker => {
  const readKeys = new WeakMap<object, Set<string>>();
  const views = [new WeakMap<object, object>(), new WeakMap<object, object>()] as const;
  let isOpen = true;

  const note = (holder: object, key: string) => {
    if (!isOpen) return;
    const keys = readKeys.get(holder);
    if (keys) keys.add(key);
    else readKeys.set(holder, new Set([key]));
  };

  /**
   * Returns a proxy of an object or a list that notes the texts that are read from it by key. What a loop over all
   * members reads is not noted, because one loop would make the recording keep every text. If such a loop has read the
   * list `source` (`isListFromLoop`), reads of its elements are not noted either.
   */
  const view = (source: object, isListFromLoop: boolean): object => {
    const knownViews = views[isListFromLoop ? 1 : 0];
    const knownView = knownViews.get(source);
    if (knownView) return knownView;
    /**
     * The keys that the rule has listed, for instance with Object.keys. Later reads of these keys may belong to a loop,
     * so they are not noted.
     */
    const listedKeys = new Set<PropertyKey>();
    const viewMember = (value: unknown, isReadByLoop: boolean) =>
      isObject(value) ? view(value, isReadByLoop && Array.isArray(value)) : value;
    // The target is an empty object, because a proxy of a frozen object must return its members unchanged.
    const memberView = new Proxy(Array.isArray(source) ? [] : {}, {
      get: (_, key) => {
        const value: unknown = Reflect.get(source, key);
        const isReadByLoop = listedKeys.has(key) || isListFromLoop;
        if (typeof value === "string" && typeof key === "string" && !isReadByLoop)
          note(getOriginalOfDraft(source), key);
        return typeof key === "symbol" ? value : viewMember(value, isReadByLoop);
      },
      ownKeys: () => {
        const keys = Reflect.ownKeys(source);
        for (const key of keys) listedKeys.add(key);
        return keys;
      },
      getOwnPropertyDescriptor: (_, key) => {
        const found = Reflect.getOwnPropertyDescriptor(source, key);
        // A proxy must report members as configurable if its empty target lacks them. An empty list has a `length`.
        const isLength = Array.isArray(source) && key === "length";
        return found && { ...found, value: viewMember(found.value, true), writable: true, configurable: !isLength };
      },
      has: (_, key) => Reflect.has(source, key),
      set: (_, key, value) => Reflect.set(source, key, value),
      defineProperty: (_, key, description) => Reflect.defineProperty(source, key, description),
      deleteProperty: (_, key) => Reflect.deleteProperty(source, key),
      preventExtensions: () => false,
    });
    knownViews.set(source, memberView);
    return memberView;
  };

  return {
    watch: <T>(value: T): T => (isObject(value) ? (view(value, /* isListFromLoop */ false) as T) : value),
    has: (holder, key) => readKeys.get(holder)?.has(key) ?? false,
    close: () => {
      isOpen = false;
    },
  };
};
