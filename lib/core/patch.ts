import { isDeepStrictEqual } from "node:util";
import { Failure } from "../failure.ts";
import { escapeJsonPointerStep, getOwn, isMap, isObject, parsePointer, setMember } from "../json.ts";
import type { Patch } from "../review.ts";

type Container = Record<string, unknown> | unknown[];

/** An object or array of the original that was accessed in a draft. It is copied at its first write. */
interface Node {
  readonly original: Container;
  readonly parent: Node | undefined;
  draft: Container;
  children: Map<string, Node> | undefined;
  copy: Container | undefined;
  /** The keys of this node that were written. */
  written: Set<string> | undefined;
  /** True after a write to this node or to one below it. */
  hasWrites: boolean;
}

/** An editable form of an object. Edits don't change the object itself. */
export interface ObjectDraft<T> {
  readonly value: T;
  /** Returns the patch from the original to the edited object; empty if nothing changed. */
  changes(): Patch;
}

/** Returns a draft that records writes, so that parts without writes are neither copied nor compared. */
export const createDraft = <T extends object>(original: T): ObjectDraft<T> => {
  const root = createNode(original as Container, undefined);
  const collectChanges = () => {
    const patch: Patch = [];
    if (root.hasWrites) addDifference(patch, root, "");
    return patch;
  };
  return { value: root.draft as T, changes: collectChanges };
};

const NODE = Symbol("node");
type Target = { [NODE]: Node };
const getNode = (value: Container & Partial<Target>): Node | undefined => value[NODE];

/** Returns the original of a draft, and any other object itself. */
export const getOriginalOfDraft = (value: object): object => getNode(value as Container)?.original ?? value;

/** Creates the draft of a map or list: a Proxy that records what a rule changes. */
const createNode = (original: Container, parent: Node | undefined): Node => {
  const node: Node = {
    original,
    parent,
    draft: original,
    children: undefined,
    copy: undefined,
    written: undefined,
    hasWrites: false,
  };
  // The Proxy's target is an empty object, not the original: with a frozen target, the Proxy couldn't return drafts
  // of members.
  const target = (Array.isArray(original) ? [] : {}) as Target;
  target[NODE] = node;
  node.draft = new Proxy<Target>(target, traps) as unknown as Container;
  return node;
};

/** Returns a member as the rule sees it: the draft of a map or list, or the value itself. */
const readMember = (node: Node, key: string | symbol): unknown => {
  const content = node.copy ?? node.original;
  const value = Reflect.get(content, key);
  if (!isContainer(value) || typeof key === "symbol") return value;
  // Values that the rule wrote, and inherited members, are returned unchanged; only the original's values need a draft.
  if (!Object.hasOwn(content, key) || node.written?.has(key)) return value;
  node.children ??= new Map();
  let child = node.children.get(key);
  if (child === undefined) {
    child = createNode(value, node);
    node.children.set(key, child);
  }
  return child.draft;
};

/** Copies a map or list before its first change, and marks the containers around it as changed. */
const prepareWrite = (node: Node, key: string | symbol): Container => {
  if (typeof key === "symbol") throw createNoJsonFailure(key);
  node.copy ??= Array.isArray(node.original) ? [...node.original] : { ...node.original };
  node.written ??= new Set();
  node.written.add(key);
  for (let ancestor: Node | undefined = node; ancestor && !ancestor.hasWrites; ancestor = ancestor.parent)
    ancestor.hasWrites = true;
  return node.copy;
};

/** How a draft behaves: like the object, with writes to a copy. */
const traps: ProxyHandler<Target> = {
  get: (target, key) => (key === NODE ? target[NODE] : readMember(target[NODE], key)),
  has: ({ [NODE]: node }, key) => Reflect.has(node.copy ?? node.original, key),
  ownKeys: ({ [NODE]: node }) => Reflect.ownKeys(node.copy ?? node.original),
  getOwnPropertyDescriptor: ({ [NODE]: node }, key) => {
    const content = node.copy ?? node.original;
    if (!Object.hasOwn(content, key)) return undefined;
    const isLength = Array.isArray(content) && key === "length";
    return { value: readMember(node, key), writable: true, enumerable: !isLength, configurable: !isLength };
  },
  set: (target, key, value) => setMember(prepareWrite(target[NODE], key), String(key), value),
  defineProperty: (target, key, { value }) => setMember(prepareWrite(target[NODE], key), String(key), value),
  deleteProperty: (target, key) => Reflect.deleteProperty(prepareWrite(target[NODE], key), key),
  preventExtensions: () => false,
};

/** Applies a patch made by this module to a copy; branches that the patch doesn't touch are shared. */
export const applyPatch = (object: unknown, patch: Patch): unknown => {
  const copies = new WeakSet<object>();
  /**
   * Copies an object or list of which the patch changes a part. A copy that an earlier operation of the same patch
   * made is used again.
   */
  const copyOnce = <T extends object>(before: T, copyValue: (before: T) => T): T => {
    if (copies.has(before)) return before;
    const copy = copyValue(before);
    copies.add(copy);
    return copy;
  };
  const applyChange = (before: unknown, [key, ...rest]: string[], change: Patch[number]): unknown => {
    if (key === undefined) return change.op === "remove" ? undefined : change.value;
    if (Array.isArray(before)) {
      const index = Number(key);
      const isLastStep = rest.length === 0;
      const isInsertion = isLastStep && change.op === "add";
      const value = isLastStep && change.op === "remove" ? [] : [applyChange(before[index], rest, change)];
      const list = copyOnce<unknown[]>(before, (list) => [...list]);
      list.splice(index, isInsertion ? 0 : 1, ...value);
      return list;
    }
    if (!isMap(before)) throw new TypeError(`there is nothing at ${change.path} to ${change.op}`);
    const value = applyChange(getOwn(before, key), rest, change);
    const map = copyOnce(before, (map) => ({ ...map }));
    if (value === undefined) delete map[key];
    else setMember(map, key, value);
    return map;
  };
  return patch.reduce<unknown>((before, change) => applyChange(before, parsePointer(change.path), change), object);
};

/** Adds the operations that turn the original of a draft into its changed form. */
const addDifference = (changes: Patch, node: Node, path: string): void => {
  const { original, copy, written, children = [] } = node;
  if (copy && Array.isArray(original)) {
    addListDifference(changes, original, removeDrafts(node.draft) as unknown[], path);
    return;
  }
  for (const [key, child] of children)
    if (child.hasWrites && !written?.has(key)) addDifference(changes, child, `${path}/${escapeJsonPointerStep(key)}`);
  for (const key of written ?? [])
    addValueDifference(
      changes,
      getOwn(original, key),
      removeDrafts(getOwn(copy ?? {}, key)),
      `${path}/${escapeJsonPointerStep(key)}`,
    );
};

/** Returns the patch from one value to another at a path; undefined means absent. Identical objects aren't walked. */
export const computePatch = (before: unknown, after: unknown, path: string): Patch => {
  const changes: Patch = [];
  addValueDifference(changes, before, after, path);
  return changes;
};

// The list of changes is passed down: spreading the list of a large object into a call would overflow the stack.
const addValueDifference = (changes: Patch, before: unknown, after: unknown, path: string): void => {
  if (before === after) return;
  if (after === undefined) changes.push({ op: "remove", path });
  else if (before === undefined) changes.push({ op: "add", path, value: after });
  else if (Array.isArray(before) && Array.isArray(after)) addListDifference(changes, before, after, path);
  else if (!isMap(before) || !isMap(after)) changes.push({ op: "replace", path, value: after });
  else
    for (const key in { ...before, ...after })
      if (getOwn(before, key) !== getOwn(after, key))
        addValueDifference(changes, getOwn(before, key), getOwn(after, key), `${path}/${escapeJsonPointerStep(key)}`);
};

/**
 * Adds the patch operations that turn one list into the other. Equal elements at the beginning and the end are skipped,
 * so an insertion in front is one operation. Finding them is fast: untouched elements are the same objects.
 */
const addListDifference = (
  changes: Patch,
  before: readonly unknown[],
  after: readonly unknown[],
  path: string,
): void => {
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && isDeepStrictEqual(before[head], after[head])) head++;
  let tail = 0;
  while (tail < shorter - head && isDeepStrictEqual(before[before.length - 1 - tail], after[after.length - 1 - tail]))
    tail++;

  const commonEnd = shorter - tail;
  for (let index = head; index < commonEnd; index++)
    addValueDifference(changes, before[index], after[index], `${path}/${index}`);
  for (let index = before.length - tail - 1; index >= commonEnd; index--)
    changes.push({ op: "remove", path: `${path}/${index}` });
  for (let index = commonEnd; index < after.length - tail; index++)
    changes.push({ op: "add", path: `${path}/${index}`, value: after[index] });
};

/** Replaces drafts in a value by plain objects, as JSON would write them; an untouched part is the original object. */
const removeDrafts = (value: unknown): unknown => {
  if (!isContainer(value)) return requireJsonScalar(value);
  const node = getNode(value);
  if (node?.hasWrites === false) return node.original;
  const content = node === undefined ? value : (node.copy ?? node.original);
  if (Array.isArray(content)) {
    const list: unknown[] = [];
    for (let index = 0; index < content.length; index++)
      list.push(removeMemberDrafts(node, String(index), content[index]) ?? null);
    return list;
  }
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(content)) {
    const member = removeMemberDrafts(node, key, content[key]);
    if (member !== undefined) setMember(result, key, member);
  }
  return result;
};

/**
 * Returns a member without drafts, the Proxies that record the writes of a rule. A member that the rule wrote may have
 * drafts anywhere in it. A member of the original has one only if the rule accessed it: in the `children` of the node.
 */
const removeMemberDrafts = (node: Node | undefined, key: string, value: unknown): unknown => {
  if (node === undefined || node.written?.has(key)) return removeDrafts(value);
  const child = node.children?.get(key);
  return child === undefined ? value : removeDrafts(child.draft);
};

/** Returns a value that is neither a map nor a list. Throws if JSON has no such value. Undefined stands for absence. */
const requireJsonScalar = (value: unknown): unknown => {
  if (value === null || typeof value === "string" || typeof value === "boolean" || value === undefined) return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  // An object has such integers only for rules with `exactIntegers`.
  if (typeof value === "bigint" && !Number.isSafeInteger(Number(value))) return value;
  throw createNoJsonFailure(value);
};

const createNoJsonFailure = (value: unknown) =>
  new Failure(500, `the rule wrote ${String(value)} where JSON has no such value`);

const isContainer = (value: unknown): value is Container => isObject(value);
