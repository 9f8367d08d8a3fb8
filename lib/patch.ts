import { isDeepStrictEqual } from "node:util";
import { Failure } from "./failure.ts";
import { escapeStep, isMap, isObject, own, parsePointer } from "./json.ts";
import type { Patch } from "./review.ts";

type Container = Record<string, unknown> | unknown[];

/**
 * One object or array of the original that somebody looked at. It is copied when it is first written to; `written`
 * are the keys that were, `open` says that something here or below was. The original is never touched.
 */
interface Node {
  readonly original: Container;
  readonly parent: Node | undefined;
  draft: Container;
  children: Map<string, Node> | undefined;
  copy: Container | undefined;
  written: Set<string> | undefined;
  open: boolean;
}

export interface Draft<T> {
  /** To be edited as if it were the object itself. */
  readonly value: T;
  /** What leads from the original to the edited object; empty where nothing changed. */
  changes(): Patch;
}

/**
 * A private draft of an object that records where it was written, so that only the branches that were touched are
 * compared, and the rest is neither copied nor walked.
 */
export const draft = <T extends object>(original: T): Draft<T> => {
  const root = open(original as Container, undefined);
  // The proxy stands for the object it was made from and answers as it would.
  const changes = () => {
    const patch: Patch = [];
    if (root.open) addDifference(patch, root, "");
    return patch;
  };
  return { value: root.draft as T, changes };
};

/** Drafts answer to it with their node; nothing else has it. */
const NODE = Symbol("node");
type Target = { [NODE]: Node };
const nodeOf = (value: Container & Partial<Target>): Node | undefined => value[NODE];

/** The object that a draft was made of; any other object is its own. */
export const originalOf = (value: object): object => nodeOf(value as Container)?.original ?? value;

const open = (original: Container, parent: Node | undefined): Node => {
  const node: Node = {
    original,
    parent,
    draft: original,
    children: undefined,
    copy: undefined,
    written: undefined,
    open: false,
  };
  // A stand-in as the proxy's target: the invariants of a frozen original would forbid drafts inside it.
  const target = (Array.isArray(original) ? [] : {}) as Target;
  target[NODE] = node;
  node.draft = new Proxy<Target>(target, traps) as unknown as Container;
  return node;
};

const read = (node: Node, key: string | symbol): unknown => {
  const content = node.copy ?? node.original;
  const value = Reflect.get(content, key);
  if (!isContainer(value) || typeof key === "symbol") return value;
  // What a rule put here is its own already; what belongs to the prototype is nobody's.
  if (!Object.hasOwn(content, key) || node.written?.has(key)) return value;
  node.children ??= new Map();
  let child = node.children.get(key);
  if (child === undefined) {
    child = open(value, node);
    node.children.set(key, child);
  }
  return child.draft;
};

const write = (node: Node, key: string | symbol): Container => {
  if (typeof key === "symbol") throw noJson(key);
  node.copy ??= Array.isArray(node.original) ? [...node.original] : { ...node.original };
  node.written ??= new Set();
  node.written.add(key);
  for (let above: Node | undefined = node; above && !above.open; above = above.parent) above.open = true;
  return node.copy;
};

const traps: ProxyHandler<Target> = {
  get: (target, key) => (key === NODE ? target[NODE] : read(target[NODE], key)),
  has: ({ [NODE]: node }, key) => Reflect.has(node.copy ?? node.original, key),
  ownKeys: ({ [NODE]: node }) => Reflect.ownKeys(node.copy ?? node.original),
  getOwnPropertyDescriptor: ({ [NODE]: node }, key) => {
    const content = node.copy ?? node.original;
    if (!Object.hasOwn(content, key)) return undefined;
    const isLength = Array.isArray(content) && key === "length";
    return { value: read(node, key), writable: true, enumerable: !isLength, configurable: !isLength };
  },
  set: (target, key, value) => put(write(target[NODE], key), String(key), value),
  defineProperty: (target, key, { value }) => put(write(target[NODE], key), String(key), value),
  deleteProperty: (target, key) => Reflect.deleteProperty(write(target[NODE], key), key),
  preventExtensions: () => false,
};

/** `__proto__` is a key like any other. */
const put = (copy: Container, key: string, value: unknown): boolean => {
  if (key === "__proto__")
    Object.defineProperty(copy, key, { value, writable: true, enumerable: true, configurable: true });
  else (copy as Record<string, unknown>)[key] = value;
  return true;
};

/** The object that a patch of ours makes of another, which stays as it is; branches that nothing touches are shared. */
export const applied = (object: unknown, patch: Patch): unknown => {
  const copies = new WeakSet<object>();
  /** One to be changed: who copied it for a change before need not copy it for the next. */
  const ours = <T extends object>(before: T, copied: (before: T) => T): T => {
    if (copies.has(before)) return before;
    const copy = copied(before);
    copies.add(copy);
    return copy;
  };
  const at = (before: unknown, [key, ...rest]: string[], change: Patch[number]): unknown => {
    if (key === undefined) return change.op === "remove" ? undefined : change.value;
    if (Array.isArray(before)) {
      const index = Number(key);
      const isHere = rest.length === 0;
      const inserted = isHere && change.op === "add";
      const value = isHere && change.op === "remove" ? [] : [at(before[index], rest, change)];
      const list = ours<unknown[]>(before, (list) => [...list]);
      list.splice(index, inserted ? 0 : 1, ...value);
      return list;
    }
    if (!isMap(before)) throw new TypeError(`there is nothing at ${change.path} to ${change.op}`);
    const value = at(own(before, key), rest, change);
    const map = ours(before, (map) => ({ ...map }));
    if (value === undefined) delete map[key];
    else put(map, key, value);
    return map;
  };
  return patch.reduce<unknown>((before, change) => at(before, parsePointer(change.path), change), object);
};

/** Adds what was written, here or below, to `changes`; looks at nothing else. */
const addDifference = (changes: Patch, node: Node, path: string): void => {
  const { original, copy, written, children = [] } = node;
  if (copy && Array.isArray(original)) {
    addOfLists(changes, original, finished(node.draft) as unknown[], path);
    return;
  }
  for (const [key, child] of children)
    if (child.open && !written?.has(key)) addDifference(changes, child, `${path}/${escapeStep(key)}`);
  for (const key of written ?? [])
    addBetween(changes, own(original, key), finished(own(copy ?? {}, key)), `${path}/${escapeStep(key)}`);
};

/** From one value to another in the same place; undefined stands for none. What is the same object isn't looked into. */
export const between = (old: unknown, now: unknown, path: string): Patch => {
  const changes: Patch = [];
  addBetween(changes, old, now, path);
  return changes;
};

// One list of changes is handed down: spreading the list of a large object into a call would overflow the stack.
const addBetween = (changes: Patch, old: unknown, now: unknown, path: string): void => {
  if (old === now) return;
  if (now === undefined) changes.push({ op: "remove", path });
  else if (old === undefined) changes.push({ op: "add", path, value: now });
  else if (Array.isArray(old) && Array.isArray(now)) addOfLists(changes, old, now, path);
  else if (!isMap(old) || !isMap(now)) changes.push({ op: "replace", path, value: now });
  else
    for (const key in { ...old, ...now })
      if (own(old, key) !== own(now, key))
        addBetween(changes, own(old, key), own(now, key), `${path}/${escapeStep(key)}`);
};

/**
 * Lists differ in what lies between their common head and tail. Elements that nobody touched are the same objects as
 * before, so that an insertion in front is one operation, not a rewriting of all that follows.
 */
const addOfLists = (changes: Patch, before: readonly unknown[], after: readonly unknown[], path: string): void => {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && isDeepStrictEqual(before[head], after[head])) head++;
  let tail = 0;
  while (tail < shorter - head && isDeepStrictEqual(before[before.length - 1 - tail], after[after.length - 1 - tail]))
    tail++;

  const both = shorter - tail;
  for (let index = head; index < both; index++) addBetween(changes, before[index], after[index], `${path}/${index}`);
  for (let index = before.length - tail - 1; index >= both; index--)
    changes.push({ op: "remove", path: `${path}/${index}` });
  for (let index = both; index < after.length - tail; index++)
    changes.push({ op: "add", path: `${path}/${index}`, value: after[index] });
};

/** The value without drafts and as JSON would write it; what nobody touched is the very object it was. */
const finished = (value: unknown): unknown => {
  if (!isContainer(value)) return plain(value);
  const node = nodeOf(value);
  if (node?.open === false) return node.original;
  const content = node === undefined ? value : (node.copy ?? node.original);
  if (Array.isArray(content)) {
    const list: unknown[] = [];
    for (let index = 0; index < content.length; index++) list.push(member(node, String(index), content[index]) ?? null);
    return list;
  }
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(content)) {
    const now = member(node, key, content[key]);
    if (now !== undefined) put(result, key, now);
  }
  return result;
};

/** What stands under a key, finished; what nobody wrote or opened is the original, which isn't walked. */
const member = (node: Node | undefined, key: string, value: unknown): unknown => {
  if (node === undefined || node.written?.has(key)) return finished(value);
  const child = node.children?.get(key);
  return child === undefined ? value : finished(child.draft);
};

const plain = (value: unknown): unknown => {
  if (value === null || typeof value === "string" || typeof value === "boolean" || value === undefined) return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw noJson(value);
};

const noJson = (value: unknown) => new Failure(500, `the rule wrote ${String(value)} where JSON has no such value`);

const isContainer = (value: unknown): value is Container => isObject(value);
