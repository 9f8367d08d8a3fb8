// Policies may not have passed their checks, so every error in this folder names its field.

import type { FoundValue, JsonMap } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import type { OverrideTemplate, ValueReference } from "../types.ts";
import { changeAffinity } from "./affinity.ts";
import { changeMetadata, isConstant } from "./metadata.ts";
import { podSpecOf } from "./pod-spec.ts";
import { changeResources, oversell } from "./resources.ts";
import { changeTolerations } from "./tolerations.ts";

const inPodSpec = new Map<string, (podSpec: JsonMap, template: OverrideTemplate) => boolean>([
  ["resources", changeResources],
  ["resourcesOversell", oversell],
  ["tolerations", changeTolerations],
  ["affinity", changeAffinity],
]);

const isOfMetadata = (type: string): type is "annotations" | "labels" => type === "annotations" || type === "labels";

/** Returns the reference that a template uses: a constant wins over it, and only metadata takes one. */
export const referenceOf = ({ type, operation, value, valueRef }: OverrideTemplate): ValueReference | undefined =>
  isOfMetadata(type) && operation !== "remove" && !isConstant(value) ? (valueRef ?? undefined) : undefined;

/** Applies a template in place and reports whether anything changed. Most types do nothing without a pod spec. */
export const applyTemplate = (
  object: KubernetesObject,
  template: OverrideTemplate,
  referenced: FoundValue | undefined,
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
