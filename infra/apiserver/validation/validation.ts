import type { AdmissionAttributes } from "#infra/apiserver/admission/types.ts";
import { getOwn, isMap } from "#lib/json.ts";
import type { KubernetesObject, Status } from "#lib/review.ts";
import type { FindCustomKind } from "./custom-resources.ts";
import { type FieldFault, validateFields } from "./fields.ts";
import { findImmutableFaults } from "./immutable.ts";

/**
 * Returns the refusal of a complete object by API validation; undefined if no fault is known. Without a fault,
 * `unsupported` is what can't be evaluated here.
 */
export type ValidateObject = (attributes: AdmissionAttributes) => Status | { unsupported: string } | undefined;

/**
 * Returns the validation of an API server: of each kind, the part that is known here. `reportUnknown` is called with an
 * object of a kind of which nothing is known.
 */
export const createValidation =
  (
    kubernetes: string | undefined,
    findCustomKind: FindCustomKind,
    reportUnknown: (object: KubernetesObject) => void = () => {},
  ): ValidateObject =>
  ({ object, oldObject, operation, subResource, kind, name = "" }) => {
    if (!isMap(object) || subResource || (operation !== "CREATE" && operation !== "UPDATE")) return undefined;
    const custom = findCustomKind(object);
    const old = operation === "UPDATE" && isMap(oldObject) ? (oldObject as KubernetesObject) : undefined;
    const unsupported: string[] = [];
    const tell = (sentence: string) => void unsupported.push(sentence);
    const find = (one: unknown, before?: KubernetesObject, report = tell): FieldFault[] | undefined =>
      custom
        ? custom.validate(one as KubernetesObject, before, report)
        : validateFields(one as KubernetesObject, kubernetes);
    const found = find(object, old);
    if (found === undefined) {
      reportUnknown(object as KubernetesObject);
      return undefined;
    }
    // An API server may tolerate what the stored object has already, also at another place of a list.
    const toKey = ({ field, message }: FieldFault) => `${field}: ${message}`.replaceAll(/\[\d+\]/g, "[]");
    const tolerated = new Set(old ? find(old, undefined, () => {})?.map(toKey) : []);
    const faults = found
      .filter((fault) => !isInSecondSource(object, fault))
      .filter((fault) => !tolerated.has(toKey(fault)) && !(old && fault.message.endsWith(" on create")))
      .map((fault) => nameGeneratedName(fault, object));
    if (old && !custom) faults.push(...findImmutableFaults(object as KubernetesObject, old));
    if (faults.length > 0) return buildRefusal(kind, name, faults);
    return unsupported[0] === undefined ? undefined : { unsupported: unsupported[0] };
  };

/** Reports whether a fault is in a volume with several sources, of which an API server validates only the first. */
const isInSecondSource = (object: unknown, { field }: FieldFault): boolean => {
  const [, volume] = /^(.*\bvolumes\[\d+\])\./.exec(field) ?? [];
  const found = volume?.match(/[^.[\]]+/g)?.reduce<unknown>(getOwn, object);
  return isMap(found) && Object.keys(found).length > 2;
};

/** The generated name is random in an API server, which also says what is wrong of the prefix. */
const nameGeneratedName = (
  { field, reason, message }: FieldFault,
  { metadata }: Record<string, unknown>,
): FieldFault => {
  const [name, prefix] = [getOwn(metadata, "name"), getOwn(metadata, "generateName")];
  if (field !== "metadata.name" || typeof prefix !== "string" || !String(name).startsWith(prefix))
    return { field, reason, message };
  const said = message.replace(JSON.stringify(name), () => JSON.stringify(prefix));
  return { field: "metadata.generateName", reason, message: said };
};

const buildRefusal = (
  { group, kind }: AdmissionAttributes["kind"],
  name: string,
  causes: readonly FieldFault[],
): Status => {
  const sentences = causes.map(({ field, message }) => `${field}: ${message}`);
  const [first, second] = sentences;
  const reasons = second === undefined ? first : `[${sentences.join(", ")}]`;
  const message = `${group === "" ? kind : `${kind}.${group}`} ${JSON.stringify(name)} is invalid: ${reasons}`;
  return { code: 422, reason: "Invalid", message, details: { name, group, kind, causes: [...causes] } };
};
