import { isSame } from "#lib/json.ts";
import type { GroupVersionKind } from "#lib/review.ts";
import type { Around, Attributes } from "./trace.ts";

/** The objects of a request in one version. */
export interface Versioned {
  kind: GroupVersionKind;
  object: unknown;
  oldObject: unknown;
}

/** A request's objects, in whatever version somebody wants them. */
export interface View {
  /** As they were asked for last. */
  readonly latest: Versioned;
  /** In another version; undefined where nobody knows how to convert them. */
  as(kind: GroupVersionKind): Versioned | undefined;
  /** The object as somebody left it, in the version in which it was asked for last. */
  put(object: unknown): void;
}

/** What a request brings, in the version in which it came. */
export const openView = ({ kind, object, oldObject }: Attributes, convert: Around["convert"]): View => {
  let latest: Versioned = { kind, object, oldObject };
  const original = latest;
  return {
    get latest() {
      return latest;
    },
    as: (wanted) => {
      if (latest.kind === wanted || isSame(latest.kind, wanted)) return latest;
      const old = isSame(wanted, kind) ? original.oldObject : converted(original.oldObject, wanted, convert);
      const now = converted(latest.object, wanted, convert);
      if (old === undefined || now === undefined) return undefined;
      latest = { kind: wanted, object: now, oldObject: old };
      return latest;
    },
    put: (object) => {
      latest = { ...latest, object };
    },
  };
};

const converted = (object: unknown, kind: GroupVersionKind, convert: Around["convert"]): unknown =>
  object == null ? null : convert?.(object, kind);
