import { getOwn, isMap } from "#lib/json.ts";
import type { Status } from "#lib/review.ts";
import type { Path } from "../manifests/manifests.ts";

/** Splits `spec.containers[0].image`, `metadata.labels[app.kubernetes.io/name]` or `data.a` into steps. */
export const parsePath = (field: string): Path =>
  [...field.matchAll(/\[(?:"([^"]*)"|([^\]]*))\]|([^.[\]]+)/g)].map(([, quoted, bracketed, word]) => {
    const step = quoted ?? bracketed ?? word ?? "";
    return quoted === undefined && /^\d+$/.test(step) && bracketed !== undefined ? Number(step) : step;
  });

/** Converts the Go names that upstream plugins use: `pod.Spec.SecurityContext` means `spec.securityContext`. */
const inGo = ([, ...rest]: Path): Path =>
  rest.map((step) => (typeof step === "string" ? step.charAt(0).toLowerCase() + step.slice(1) : step));

const looksLikeField = /\b[a-z][A-Za-z0-9]*(?:(?:\.[A-Za-z][\w-]*)|\[[^\]\s]{1,253}\])+/g;
const quoted = /"([^"]{1,253})"/g;

/**
 * Returns the field that a refusal is probably about: from its causes, from a field that the message names, or from a
 * container that the message names.
 */
export const findField = (object: unknown, { message, details }: Status, otherwise: Path): Path => {
  const causes = (details?.causes ?? []).flatMap(({ field }) => (field ? [parsePath(field)] : []));
  const named = [...message.matchAll(looksLikeField)].flatMap(([word]) => [parsePath(word), inGo(parsePath(word))]);
  for (const path of [...causes, ...named]) {
    const depth = depthIn(object, path);
    if (depth > 0) return path.slice(0, depth);
  }
  const names = new Set<unknown>([...message.matchAll(quoted)].map(([, name]) => name));
  for (const container of containersIn(object)) {
    if (!names.has(container.name)) continue;
    const inside = named.find((path) => depthIn(container.value, path) > 0) ?? memberIn(container.value, message);
    return [...container.path, ...inside.slice(0, depthIn(container.value, inside))];
  }
  return otherwise;
};

/** Returns a member that the message names, such as `image` in "images must come from …". */
const memberIn = (container: unknown, message: string): Path => {
  const words = new Set(message.split(/[^A-Za-z]+/));
  const found =
    isMap(container) &&
    Object.keys(container).find((key) => key !== "name" && (words.has(key) || words.has(`${key}s`)));
  return found ? [found] : [];
};

/** Returns the number of leading steps of a path that exist. */
const depthIn = (value: unknown, path: Path): number => {
  let inner = value;
  for (const [depth, step] of path.entries()) {
    inner = getOwn(inner, step);
    if (inner === undefined) return depth;
  }
  return path.length;
};

interface Container {
  name: unknown;
  path: Path;
  value: unknown;
}

const lists = ["containers", "initContainers", "ephemeralContainers"];

const containersIn = (object: unknown): Container[] => {
  const places: Path[] = [["spec"], ["spec", "template", "spec"], ["spec", "jobTemplate", "spec", "template", "spec"]];
  return places.flatMap((place) => {
    const spec = place.reduce<unknown>(getOwn, object);
    return lists.flatMap((list) => {
      const all = isMap(spec) ? spec[list] : undefined;
      if (!Array.isArray(all)) return [];
      return all.map((value: unknown, index) => ({
        name: getOwn(value, "name"),
        path: [...place, list, index],
        value,
      }));
    });
  });
};
