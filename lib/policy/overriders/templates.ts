// What overriders do to an object, in place: templates here, each kind in a file of its own; JSON patches in plaintext.ts,
// `origin` in origins.ts. They take policies that may have passed no admission, and fail in a sentence that names the field.

import type { Found, Json } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import type { OverrideTemplate, Reference } from "../kinds.ts";
import { changeAffinity } from "./affinity.ts";
import { changeMetadata, isConstant } from "./metadata.ts";
import { podSpecOf } from "./pod-spec.ts";
import { changeResources, oversell } from "./resources.ts";
import { changeTolerations } from "./tolerations.ts";

const inPodSpec = new Map<string, (podSpec: Json, template: OverrideTemplate) => boolean>([
  ["resources", changeResources],
  ["resourcesOversell", oversell],
  ["tolerations", changeTolerations],
  ["affinity", changeAffinity],
]);

const isOfMetadata = (type: string): type is "annotations" | "labels" => type === "annotations" || type === "labels";

/** The reference whose value a template asks for: a constant wins over it, and only metadata takes one. */
export const referenceOf = ({ type, operation, value, valueRef }: OverrideTemplate): Reference | undefined =>
  isOfMetadata(type) && operation !== "remove" && !isConstant(value) ? (valueRef ?? undefined) : undefined;

/** Does to an object what a template says, and says whether that changed anything. Without a pod spec, most do nothing. */
export const applyTemplate = (
  object: KubernetesObject,
  template: OverrideTemplate,
  referenced: Found | undefined,
): boolean => {
  const { type, operation } = template;
  if (!["add", "replace", "remove"].includes(operation))
    throw new Error("template.operation must be add, replace or remove");
  if (isOfMetadata(type)) return changeMetadata(object, type, template, referenced);

  const change = inPodSpec.get(type);
  if (change === undefined)
    throw new Error(`template.type must be annotations, labels, ${[...inPodSpec.keys()].join(", ")}`);
  const podSpec = podSpecOf(object);
  return podSpec !== undefined && change(podSpec, template);
};
