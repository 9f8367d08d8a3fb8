import { getOwn, isMap } from "#lib/json.ts";
import type { Status } from "#lib/review.ts";
import type { FieldPath } from "../../manifests/manifests.ts";

/** Splits `spec.containers[0].image`, `metadata.labels[app.kubernetes.io/name]` or `data.a` into steps. */
export const parseFieldPath = (field: string): FieldPath =>
  [...field.matchAll(/\[(?:"([^"]*)"|([^\]]*))\]|([^.[\]]+)/g)].map(([, quoted, bracketed, word]) => {
    const step = quoted ?? bracketed ?? word ?? "";
    return quoted === undefined && /^\d+$/.test(step) && bracketed !== undefined ? Number(step) : step;
  });

/** Converts the Go names that upstream plugins use: `pod.Spec.SecurityContext` means `spec.securityContext`. */
const fromGoPath = ([, ...rest]: FieldPath): FieldPath =>
  rest.map((step) => (typeof step === "string" ? step.charAt(0).toLowerCase() + step.slice(1) : step));

/** Matches what looks like a field in a message, such as `spec.containers[0].image`. */
const looksLikeField = /\b[a-z][A-Za-z0-9]*(?:(?:\.[A-Za-z][\w-]*)|\[[^\]\s]{1,253}\])+/g;
const quoted = /"([^"]{1,253})"/g;

/**
 * Returns the field that a refusal is probably about: from its causes, from a field that the message names, or from a
 * container that the message names.
 */
export const guessRefusedField = (object: unknown, { message, details }: Status, otherwise: FieldPath): FieldPath => {
  const causes = (details?.causes ?? []).flatMap(({ field }) => (field ? [parseFieldPath(field)] : []));
  const named = [...message.matchAll(looksLikeField)].flatMap(([word]) => [
    parseFieldPath(word),
    fromGoPath(parseFieldPath(word)),
  ]);
  for (const path of [...causes, ...named]) {
    const depth = countExistingSteps(object, path);
    if (depth > 0) return path.slice(0, depth);
  }
  const names = new Set<unknown>([...message.matchAll(quoted)].map(([, name]) => name));
  for (const container of listContainers(object)) {
    if (!names.has(container.name)) continue;
    const inside =
      named.find((path) => countExistingSteps(container.value, path) > 0) ?? findMember(container.value, message);
    return [...container.path, ...inside.slice(0, countExistingSteps(container.value, inside))];
  }
  return otherwise;
};

/** Returns the path of the member that a refusal's message names, such as `image` in "images must come from …". */
const findMember = (container: unknown, message: string): FieldPath => {
  const words = new Set(message.split(/[^A-Za-z]+/));
  const found =
    isMap(container) &&
    Object.keys(container).find((key) => key !== "name" && (words.has(key) || words.has(`${key}s`)));
  return found ? [found] : [];
};

/** Returns the number of leading steps of a path that exist. */
const countExistingSteps = (value: unknown, path: FieldPath): number => {
  let inner = value;
  for (const [depth, step] of path.entries()) {
    inner = getOwn(inner, step);
    if (inner === undefined) return depth;
  }
  return path.length;
};

/** A container of a Pod or workload (`value`), with the path to it in that object. */
interface Container {
  name: unknown;
  path: FieldPath;
  value: unknown;
}

const lists = ["containers", "initContainers", "ephemeralContainers"];

/** Lists the containers of a Pod or workload with their paths. */
const listContainers = (object: unknown): Container[] => {
  const places: FieldPath[] = [
    ["spec"],
    ["spec", "template", "spec"],
    ["spec", "jobTemplate", "spec", "template", "spec"],
  ];
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
