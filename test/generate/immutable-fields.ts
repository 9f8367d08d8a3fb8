// Learns infra/apiserver/validation/immutable.json: the fields of stored objects that can't be changed, in all minors.
import type { KubernetesObject } from "#lib/review.ts";
import types from "../../infra/apiserver/defaults/types.json" with { type: "json" };
import { getCollectionPath, type TestClusterClient } from "../control-plane/client.ts";
import { addNamespace, type Field, forAll, getAt, listFields, readValidObjects, setAt } from "./field-rule-learning.ts";

/** What became of the changes of one field: whether one was accepted, and the fields and words of refusals. */
export interface ChangedField {
  kind: string;
  place: string;
  isAccepted: boolean;
  refusals: string[];
}

/** The fields that can't be changed, by kinds and paths: the field that the API server names, and what it says. */
export type ImmutableFields = Record<string, Record<string, [field: string, detail: string]>>;

/** Changes the fields of stored objects one after the other. */
export const changeFields = async (admin: TestClusterClient): Promise<ChangedField[]> => {
  const changed: ChangedField[] = [];
  for (const given of readValidObjects().objects) {
    const object = addNamespace(given);
    const { code, body } = await admin({ method: "POST", path: getCollectionPath(object), body: object });
    if (code !== 201) continue;
    const stored = body as KubernetesObject;
    const path = `${getCollectionPath(object)}/${stored.metadata?.name}?dryRun=All`;
    await forAll(listFields(stored, types.types, types.kinds), async (field) => {
      if (field.path[0] === "metadata") return;
      for (const value of listOtherValues(field)) {
        const answer = await admin({ method: "PUT", path, body: setAt(stored, field.path, value) }).catch(
          () => undefined,
        );
        const { causes } = Object(answer?.body.details);
        const kind = `${object.apiVersion} ${object.kind}`;
        const refusals = (Array.isArray(causes) ? causes : []).flatMap(describeImmutable);
        changed.push({ kind, place: field.place, isAccepted: answer?.code === 200, refusals });
      }
    });
  }
  return changed;
};

const listOtherValues = ({ object, path, word }: Field): unknown[] => {
  const value = getAt(object, path);
  if (value === undefined || value === null) return [];
  const plain = word.replace("*", "");
  if (plain === "text") return ["b", `${value}b`];
  if (plain === "number") return [Number(value) + 1];
  if (plain === "flag") return [!value];
  return plain === "quantity" ? ["3Gi", "3"] : [undefined];
};

/** Returns the field and the sentence of a refusal of any change, without values. */
const describeImmutable = ({ field, message }: { field: string; message: string }): string[] => {
  const [line = ""] = message.split("\n");
  const [, value = ""] = /^(Invalid value: ).*: (?:[^:]*)$/s.exec(line) ?? [];
  const detail = value === "" ? line : `${value}${line.slice(line.lastIndexOf(": ") + 2)}`;
  const isImmutable = /immutable|may not be changed|may not change fields|updates to \S+ are forbidden/.test(detail);
  return isImmutable ? [`${field}\n${detail}`] : [];
};

/** Returns the fields of which every change was refused in the same words, the outermost of them. */
const collectImmutableFields = (changed: readonly ChangedField[]): ImmutableFields => {
  const found: ImmutableFields = {};
  for (const [kind, all] of Map.groupBy(changed, (one) => one.kind)) {
    const places = [...new Set(all.map(({ place }) => place))].filter((place) => !/[[{]/.test(place)).sort();
    const kept: Record<string, [string, string]> = {};
    for (const place of places) {
      const below = all.filter(
        (one) => one.place === place || (/^[.[{]/.test(one.place.slice(place.length)) && one.place.startsWith(place)),
      );
      const words = new Set(below.flatMap(({ refusals }) => refusals));
      const isInside = Object.keys(kept).some((outer) => place.startsWith(`${outer}.`));
      const [only = ""] = words;
      if (isInside || words.size !== 1 || below.some(({ isAccepted }) => isAccepted)) continue;
      const [field = "", detail = ""] = only.split("\n");
      const isExcepted = conditional.includes(place) || mentionsPart(detail, place);
      if (!isExcepted && (place === field || place.startsWith(`${field}.`))) kept[place] = [field, detail];
    }
    if (Object.keys(kept).length > 0) found[kind] = kept;
  }
  return found;
};

/** Fields that can change together with another one, such as the type of a Service. */
const conditional = ["spec.completions", "spec.healthCheckNodePort"];

/** Reports whether a sentence names a field as one that can change in some cases. */
const mentionsPart = (detail: string, place: string): boolean => {
  const last = place.split(".").at(-1) ?? "";
  return (
    new RegExp(`\\b${last}\\b`).test(detail.replace(/^.*?(other than|except)/, "")) && /other than|except/.test(detail)
  );
};

/** Returns the fields that can't be changed in any of some minors, by what became of changes in each. */
export const findCommonImmutableFields = (changed: readonly (readonly ChangedField[])[]): ImmutableFields =>
  changed.map(collectImmutableFields).reduce(intersect);

/** Returns what is the same in two minors. */
const intersect = (left: ImmutableFields, right: ImmutableFields): ImmutableFields =>
  Object.fromEntries(
    Object.entries(left).flatMap(([kind, places]) => {
      const same = Object.entries(places).filter(([place, [field]]) => right[kind]?.[place]?.[0] === field);
      return same.length > 0 ? [[kind, Object.fromEntries(same)]] : [];
    }),
  );
